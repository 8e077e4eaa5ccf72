"""Fits on one and on two devices, told as JSON: ``python on_devices.py FOLDER``, with two devices."""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from support import sent
from support.files import write_npy

import isvi

OPTIONS = sent.OPTIONS | {"batch_size": 30, "budget": 120}  # 66 full mini-batches, and a shorter one


def told(fit: isvi.Fit) -> dict[str, Any]:
    return {
        "mean": np.asarray(fit.mean()["w"]).tolist(),
        "sd": np.asarray(fit.sd()["w"]).tolist(),
        "gradients": fit.gradients,
        "devices": len(jax.tree.leaves(fit.dataset.first.full)[0].sharding.device_set),
    }


if __name__ == "__main__":
    rows = sent.data()
    source = isvi.data.Npy(write_npy(Path(sys.argv[1]), rows), window_bytes=8_000)
    kinds: dict[str, dict[str, Any]] = {
        "in memory": {"data": rows},
        "in windows": {"data": source, "algorithm": isvi.ISGD()},
    }
    found = {
        name: [told(isvi.fit(sent.in_jax(), devices=devices, **kind, **OPTIONS)) for devices in (None, 2)]
        for name, kind in kinds.items()
    }
    print(json.dumps(found))
