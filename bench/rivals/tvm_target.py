"""The processor that TVM makes code for."""

from pathlib import Path


def host(threads):
    """This machine. LLVM tells processors by their names, also where a hypervisor hides their AVX-512, and such code crashes."""
    import tvm

    hidden = "avx512f" not in Path("/proc/cpuinfo").read_text()
    return tvm.target.Target({
        "kind": "llvm",
        "mcpu": tvm.target.codegen.llvm_get_system_cpu(),
        "mattr": ["-avx512f"] if hidden else [],
        "num-cores": threads,
    })  # fmt: skip
