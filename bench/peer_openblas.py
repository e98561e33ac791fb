"""The matmul rows of kernels.ts in OpenBLAS, opened by its name: libopenblas0-pthread on Debian. Prints nothing without it."""
import ctypes, glob, json, statistics, sys, time

names = ["libopenblas.so.0", *glob.glob("/usr/lib/*/openblas-pthread/libopenblas.so.0")]
library = None
for name in names:
    try:
        library = ctypes.CDLL(name)
        break
    except OSError:
        pass
if library is None:
    sys.exit(0)

size = 2048
count = size * size
a, b, c = ((ctypes.c_float * count)(*([value] * count)) for value in (0.5, 0.25, 0.0))


def product():
    library.cblas_sgemm(101, 111, 111, size, size, size, ctypes.c_float(1), a, size, b, size, ctypes.c_float(0), c, size)


times = []
for repeat in range(18):
    begin = time.perf_counter()
    product()
    if repeat >= 3:
        times.append(time.perf_counter() - begin)
print(json.dumps({"name": f"matmul {size} cubed, float32", "unit": "GFLOP/s", "value": float(f"{2 * size**3 / statistics.median(times) / 1e9:.4g}"), "burst": 1}))
