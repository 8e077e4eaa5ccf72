"""Is the whole procedure calibrated? Fits of data simulated from known latents."""

from isvi.calibration.calibrate import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
