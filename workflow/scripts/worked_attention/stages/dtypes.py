"""The dtypes of the project: the one place that knows how many bytes each takes, how finely it rounds and how far it reaches."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    """One floating-point format (IEEE 754-2019, table 3.5; bfloat16 as in Intel's definition of 2018)."""

    bytes: int
    digits: int  # bits of the significand, the hidden one included
    exponent: int  # of the largest numbers: they are below 2^(exponent + 1)

    @property
    def roundoff(self) -> float:
        """Unit roundoff u: a rounded number is the exact one times 1 + delta, |delta| <= u."""
        return 2.0**-self.digits

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2 - 2.0 ** (1 - self.digits)) * 2.0**self.exponent

    @property
    def smallest(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.exponent)

    @property
    def half(self) -> bool:
        """Whether it is a half precision: sums in it lose so much that they are made in float32 where a case names nothing else."""
        return self.bytes == 2


DTYPES = {
    "float64": Dtype(bytes=8, digits=53, exponent=1023),
    "float32": Dtype(bytes=4, digits=24, exponent=127),
    "float16": Dtype(bytes=2, digits=11, exponent=15),
    "bfloat16": Dtype(bytes=2, digits=8, exponent=127),
}
HALF = tuple(name for name, dtype in DTYPES.items() if dtype.half)


def usual_precision(dtype: str) -> dict[str, str]:
    """{accumulate, softmax, scores} where a case of `dtype` names none: sums and softmax of the half precisions in float32, else all in
    its own dtype."""
    inner = "float32" if DTYPES[dtype].half else dtype
    return {"accumulate": inner, "softmax": inner, "scores": dtype}


def overflow(precision: dict[str, str]) -> dict[str, float]:
    """{possible, certain} of scores in this `precision`: beyond the first a score may be infinite, beyond the other it is. Both are the
    largest number that scores, sums and softmax can hold; the referee, who allows for roundings, tells them apart."""
    largest = min(DTYPES[dtype].largest for dtype in precision.values())
    return {"possible": largest, "certain": largest}
