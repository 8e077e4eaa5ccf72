"""Types that everything else is written in: latents, coordinates, errors."""
