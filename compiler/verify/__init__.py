"""Is a compiled model right, and if not, which pass, rewrite or kernel made it wrong?"""

from graphwright.compiler.verify.difference import Difference, difference
from graphwright.compiler.verify.kernels import KernelFault, check_kernels
from graphwright.compiler.verify.rewrites import PassFault, find_pass, find_rewrite

__all__ = [
    "Difference",
    "KernelFault",
    "PassFault",
    "check_kernels",
    "difference",
    "find_pass",
    "find_rewrite",
]
