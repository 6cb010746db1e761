"""The reference jobs of the model-similarity policy: 21 CNNs on six GPU products, and how fast they train.

From the paper (model-similarity-rounds-packing.txt, Table 2): layers and parameters of the models, the products,
batch sizes from 32 to 512, CIFAR-10. Table 2's "RTX1080Ti", which never was, is the GTX 1080 Ti. It has one and two
GPUs of A100, A40, 1080 Ti and K40M, as many as those machines had, and one to four of the others; a law is bound to
no machine, so here it is up to four of each (on the paper's cluster, `sim/presets/similarity.py`, the same).

The paper's measured times are not in it; it names a public repository of its authors, which was not reached. What
stands here instead is a law with stated inputs, so that
ranks and losses have a reason; `sim/presets/similarity.py` lets jobs run by the same law, as the paper's simulation
uses its own measurements for both. On n GPUs, b = batch / n samples each, an iteration takes the sum of

    0.1 ms x layers                                         the host launches kernels, not overlapped
    b x max(6 x MACs / (reached x peak), 24 x activations / bandwidth)  forward 1, backward 2; fp32
    20 x parameters / bandwidth                                         what the optimiser moves
    2 (n - 1) / n x 4 x parameters / (reached x link)                   ring all-reduce of gradients

Sources: MACs and activations of one image from the public model cards (timm, Keras), scaled from their resolution to
32 x 32 by area; peak fp32 rate, bandwidth and memory from NVIDIA's data sheets. That half of PCIe's rate (3.0; A100
and A40: 4.0) and half of the peak are reached is fitted to Fig. 3: with it VGG16 on several RTX 2080 Ti trains slower
than on one, but with batch 512 a little faster. `Law.reached` is another part. Kepler reaches a third of it: in
Gavel's table ResNet-18 reaches 0.77 of a V100's peak, 0.80 of a P100's, 0.25 of a K80's (6 x 0.56 GMACs by the slope
over batch sizes).
0.1 ms a layer lies between ten bare kernel launches (0.05 ms) and what that table has (0.35 to 0.6 ms).

Two jobs on one GPU, whose kernels alone run for the parts u and v of the time, are both slowed to 1 / (2 - g (1 - u
v)): taking turns (1/2) where both are always ready, and the better the less they collide. Beside any other model
VGG16 is slower than alone, beside VGG16 slower than beside ResNet101 (Fig. 4). g is such that relative speeds of
two sum on average, over all pairs of models and batch sizes, to what Gavel's measured pairs do: 1.07 on a K80 (here
for Kepler), 1.19 on a P100 (Pascal), 1.31 on a V100 (here for all that is newer).

Memory of a replica: 1000 MiB of context, 16 bytes a parameter (weights, gradients, two moments), 12 bytes an
activation and sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

BATCHES = (32, 64, 128, 256, 512)
MIB = 2**20


class References(Protocol):
    """What a policy knows of jobs that were measured before. Hashable.

    characteristics: vector of each model. products: GPU products. batches: sizes that were measured. most: GPUs of
    one job. speed: samples/s of a model on GPUs of a product at a global batch size, beside another (model,
    batch) on the same GPU or alone; 0 where it can't run so. memory: MiB of one replica at a batch size a GPU. room:
    MiB of a GPU of the product.
    """

    def __hash__(self) -> int: ...
    @property
    def characteristics(self) -> Mapping[str, Sequence[float]]: ...
    @property
    def products(self) -> Sequence[str]: ...
    @property
    def batches(self) -> Sequence[int]: ...
    @property
    def most(self) -> int: ...
    def speed(
        self, model: str, product: str, gpus: int, batch: int, beside: tuple[str, int] | None = None
    ) -> float: ...
    def memory(self, model: str, batch: float) -> int: ...
    def room(self, product: str) -> int: ...


@dataclass(frozen=True, slots=True)
class Cnn:
    """layers, parameters (millions): Table 2. macs, activations (millions) of an image of `pixels` x `pixels`."""

    layers: int
    parameters: float
    macs: float
    activations: float
    pixels: int = 224

    @property
    def area(self) -> float:
        """A CIFAR-10 image's part of that image's area."""
        return (32.0 / self.pixels) ** 2


@dataclass(frozen=True, slots=True)
class Gpu:
    """peak: fp32 flop/s, bandwidth, link: bytes/s; reached: part of what the law says that of the peak is reached;
    memory: MiB; pair: what the relative speeds of two jobs on it sum to on average."""

    peak: float
    bandwidth: float
    memory: int
    link: float = 15.8e9
    reached: float = 1.0
    pair: float = 1.31


CNNS: Mapping[str, Cnn] = {
    "VGG16": Cnn(16, 138.4, 15470, 13.56),
    "VGG19": Cnn(19, 143.7, 19630, 14.86),
    "ResNet50": Cnn(107, 25.6, 3870, 11.11),
    "ResNet50V2": Cnn(103, 25.6, 3490, 11.11),
    "ResNet101": Cnn(209, 44.7, 7600, 16.23),
    "ResNet101V2": Cnn(205, 44.7, 7200, 16.23),
    "ResNet152": Cnn(311, 60.4, 11300, 22.56),
    "ResNet152V2": Cnn(307, 60.4, 10900, 22.56),
    "MobileNet": Cnn(55, 4.3, 580, 5.04),
    "MobileNetV2": Cnn(105, 3.5, 320, 6.73),
    "DenseNet121": Cnn(242, 8.1, 2870, 6.90),
    "DenseNet169": Cnn(338, 14.3, 3400, 7.30),
    "DenseNet201": Cnn(402, 20.2, 4340, 7.85),
    "EfficientNetB0": Cnn(132, 5.3, 400, 6.75),
    "EfficientNetB1": Cnn(186, 7.9, 730, 10.88, 240),
    "EfficientNetB2": Cnn(186, 9.2, 1020, 13.83, 260),
    "EfficientNetB3": Cnn(210, 12.3, 1870, 23.83, 300),
    "EfficientNetB4": Cnn(258, 19.5, 4490, 49.49, 380),
    "EfficientNetB5": Cnn(312, 30.6, 10460, 98.86, 456),
    "EfficientNetB6": Cnn(360, 43.3, 19400, 167.39, 528),
    "EfficientNetB7": Cnn(438, 66.7, 38330, 289.94, 600),
}

GPUS: Mapping[str, Gpu] = {
    "A100": Gpu(19.5e12, 1555e9, 40 * 1024, 31.6e9),
    "A40": Gpu(37.4e12, 696e9, 48 * 1024, 31.6e9),
    "GTX1080Ti": Gpu(11.3e12, 484e9, 11 * 1024, pair=1.19),
    "K40M": Gpu(4.29e12, 288e9, 12 * 1024, reached=0.32, pair=1.07),
    "RTX2080Ti": Gpu(13.4e12, 616e9, 11 * 1024),
    "T4": Gpu(8.1e12, 320e9, 16 * 1024),
}


@dataclass(frozen=True)
class Law:
    """The law of the module's head. launch: s a layer. reached: part of peaks and links that is."""

    launch: float = 1e-4
    reached: float = 0.5

    @cached_property
    def characteristics(self) -> Mapping[str, Sequence[float]]:
        """(layers, parameters in millions). As raw counts the parameters leave nothing of the layers: all alike."""
        return {name: (float(m.layers), m.parameters) for name, m in CNNS.items()}

    @cached_property
    def overlaps(self) -> Mapping[str, float]:
        """g of each product, by bisection: the sum of relative speeds grows with it."""
        return {product: self._overlap(product) for product in GPUS}

    def _overlap(self, product: str) -> float:
        times = [self.iteration(model, product, 1, batch) for model in CNNS for batch in BATCHES]
        parts = np.array([kernels / (host + kernels) for host, kernels, _ in times])
        apart = 1.0 - np.outer(parts, parts)
        low, high = 0.0, 1.0 / float(apart.max())
        for _ in range(60):
            middle = 0.5 * (low + high)
            if float((2.0 / (2.0 - middle * apart)).mean()) < GPUS[product].pair:
                low = middle
            else:
                high = middle
        return low

    @property
    def products(self) -> Sequence[str]:
        return tuple(GPUS)

    @property
    def batches(self) -> Sequence[int]:
        return BATCHES

    @property
    def most(self) -> int:
        return 4

    def speed(
        self, model: str, product: str, gpus: int, batch: int, beside: tuple[str, int] | None = None
    ) -> float:
        """Samples/s."""
        if model not in CNNS or product not in GPUS or gpus < 1 or batch < gpus:
            return 0.0
        host, kernels, reduce = self.iteration(model, product, gpus, batch)
        whole = host + kernels + reduce
        factor = 1.0
        if beside is not None and beside[0] in CNNS and beside[1] > 0:
            theirs = self.iteration(beside[0], product, 1, beside[1])
            together = kernels / whole * theirs[1] / sum(theirs)
            factor = 1.0 / (2.0 - self.overlaps[product] * (1.0 - together))
        return factor * batch / whole

    def iteration(self, model: str, product: str, gpus: int, batch: int) -> tuple[float, float, float]:
        """Seconds of launching, of kernels, and of the all-reduce."""
        cnn, gpu = CNNS[model], GPUS[product]
        flops = 6.0 * cnn.macs * 1e6 * cnn.area / (self.reached * gpu.reached * gpu.peak)
        moved = 24.0 * cnn.activations * 1e6 * cnn.area / gpu.bandwidth
        kernels = batch / gpus * max(flops, moved) + 20.0 * cnn.parameters * 1e6 / gpu.bandwidth
        reduce = 2.0 * (gpus - 1) / gpus * 4.0 * cnn.parameters * 1e6 / (self.reached * gpu.link)
        return self.launch * cnn.layers, kernels, reduce

    def memory(self, model: str, batch: float) -> int:
        """MiB of one replica with `batch` samples."""
        cnn = CNNS[model]
        return 1000 + int((16.0 * cnn.parameters + 12.0 * cnn.activations * cnn.area * batch) * 1e6 / MIB)

    def room(self, product: str) -> int:
        """MiB of one GPU, 0 of an unknown product."""
        return GPUS[product].memory if product in GPUS else 0


PAPER = Law()
"""The reference jobs of the paper."""
