"""k-diffusion's samplers and its wrapper of discrete noise levels, without the training libraries that its package imports."""
import importlib
import importlib.util
import sys
import types


def _load():
    spec = importlib.util.find_spec("k_diffusion")  # does not run its __init__
    package = types.ModuleType("k_diffusion")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["k_diffusion"] = package
    for name in ("torchdiffeq", "torchvision", "torchvision.transforms"):
        stub = types.ModuleType(name)
        stub.odeint = stub.functional = None
        sys.modules.setdefault(name, stub)
    return importlib.import_module("k_diffusion.sampling"), importlib.import_module("k_diffusion.external")


sampling, external = _load()
