"""Times one component under OpenVINO, as bench/model.c does for tern: loads and compiles, runs once, then once for each line "run" on standard
input. With a CACHE folder the compiled model is kept there and found again.
usage: openvino_component.py FOLDER text_encoder|unet|vae_decoder THREADS f32|bf16 [CACHE]"""
import sys
import time

import numpy
import openvino

import protocol


def inputs(model):
    """Unit noise; ids as in bench/model.c; the middle one of 1000 timesteps."""
    rng = numpy.random.default_rng(0)
    for port in model.inputs:
        shape = tuple(port.shape)
        if port.element_type == openvino.Type.i64:
            flat = numpy.arange(numpy.prod(shape))
            ids = numpy.where(flat % 77 == 0, 49406, numpy.where(flat % 77 > 40, 49407, 1000 + flat))
            yield ids.reshape(shape).astype(numpy.int64)
        elif len(shape) == 1:
            yield numpy.full(shape, 500, numpy.float32)
        else:
            yield rng.standard_normal(shape, numpy.float32)


def compiled(folder, component, threads, dtype, cache=None):
    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": int(threads), "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": dtype}
    if cache:
        options["CACHE_DIR"] = cache
    return core.compile_model(f"{folder}/{component}.xml", "CPU", options)


def main(folder, component, threads, dtype, cache=None):
    start = time.monotonic()
    model = compiled(folder, component, threads, dtype, cache)
    request, values = model.create_infer_request(), list(inputs(model))
    load = time.monotonic() - start
    protocol.serve(load, lambda: request.infer(values, share_inputs=True), version=openvino.get_version().split("-")[0],
                   precision=str(model.get_property("INFERENCE_PRECISION_HINT")))


if __name__ == "__main__":
    main(*sys.argv[1:])
