#!/usr/bin/env python3
"""Trains the same network by Tunesmith and by PyTorch, from equal weights on equal batches.

usage: compare.py TUNESMITH [--model NAME] [--image N] [--batch N] [--threads N] [--steps N] [--tune TIME]
needs (PyPI): torch torchvision onnx onnxscript

Prints the losses of both, their largest relative difference, and images a second of both, taken in turns.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings


# Networks for images of 32 x 32 with 10 classes.
SMALL = ["vgg16", "resnet34"]
# Of the sequences of `transformer`: different words, and words in each.
WORDS, LENGTH = 8192, 128


def network(name):
    """`vgg16` and `resnet34` for images of 32 x 32, as the built-in `vgg16-cifar` and `resnet34-cifar`; `transformer`
    for sequences of words; the others, torchvision's among them, for images of 224 x 224. None has dropout, whose masks
    differ between the two programs."""
    import torch.nn as nn
    import torchvision.models as zoo

    if name == "mobilenet_v1":
        return mobilenet_v1()
    if name == "vit_tiny":
        return zoo.VisionTransformer(224, 16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768)
    if name == "transformer":
        return transformer()
    if name not in SMALL:
        net = zoo.get_model(name, weights=None)
        for m in net.modules():
            if isinstance(m, nn.Dropout):
                m.p = 0.0
        return net
    if name == "resnet34":
        net = zoo.resnet34(weights=None, num_classes=10)
        net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        net.maxpool = nn.Identity()
        return net
    layers, channels = [], 3
    for maps in [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0]:
        if maps == 0:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, maps, 3, padding=1), nn.ReLU()]
            channels = maps
    for width in [512, 512]:
        layers += [nn.Linear(512, width), nn.ReLU()]
    head = [nn.Flatten(), *layers[-4:], nn.Linear(512, 10)]
    net = nn.Sequential(*layers[:-4], *head)
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
    return net


def mobilenet_v1():
    import torch.nn as nn

    def layer(channels, maps, kernel, stride, groups):
        conv = nn.Conv2d(channels, maps, kernel, stride, kernel // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(maps), nn.ReLU()]

    layers, channels = layer(3, 32, 3, 2, 1), 32
    for maps, stride in [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]:
        layers += layer(channels, channels, 3, stride, channels) + layer(channels, maps, 1, 1, 1)
        channels = maps
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


def transformer():
    import torch
    import torch.nn as nn

    class Classifier(nn.Module):
        def __init__(self, width=256):
            super().__init__()
            self.words = nn.Embedding(WORDS, width)
            self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
            layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(width, 10)

        def forward(self, words):
            return self.head(self.encoder(self.words(words) + self.places)[:, 0])

    return Classifier()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tunesmith")
    parser.add_argument("--model", default="vgg16", help="vgg16, resnet34, mobilenet_v1, vit_tiny, transformer or a name of torchvision")
    parser.add_argument("--image", type=int, help="side of the images; without it, 32 or 224")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tune", metavar="TIME", help="tune the step for so long; without it, defaults")
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()

    import numpy as np
    import torch

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(a.threads)
    net = network(a.model)
    side = a.image or (32 if a.model in SMALL else 224)
    images = torch.randn(a.batch, 3, side, side)
    if a.model == "transformer":
        images = torch.randint(0, WORDS, (a.batch, LENGTH))
    labels = torch.randint(0, 10, (a.batch,))
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        # In training mode no batch normalisation is folded into its convolution.
        net.train()
        torch.onnx.export(
            net, (images,), at("net.onnx"), input_names=["image"], dynamo=False,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
        )
        np.save(at("images.npy"), images.numpy())
        np.save(at("labels.npy"), labels.numpy())
        how = ["tune", "--time", a.tune] if a.tune else ["compile"]
        common = ["--threads", str(a.threads)]
        subprocess.run(
            [a.tunesmith, how[0], at("net.onnx"), *how[1:], *common, "--train", "--learning-rate",
             str(a.rate), "--momentum", "0.9", "--out", at("step.tsm")],
            check=True, stdout=sys.stderr,
        )

        def ours(steps):
            ran = subprocess.run(
                [a.tunesmith, "train", at("step.tsm"), *common, "--input", f"image={at('images.npy')}",
                 "--input", f"labels={at('labels.npy')}", "--epochs", str(steps), "--json"],
                check=True, stdout=subprocess.PIPE,
            )
            found = json.loads(ran.stdout)
            return found["losses"], [e["seconds"] for e in found["epochs"]]

        optimiser = torch.optim.SGD(net.parameters(), lr=a.rate, momentum=0.9)
        loss_of = torch.nn.CrossEntropyLoss()

        def theirs(steps):
            losses, seconds = [], []
            for _ in range(steps):
                begin = time.perf_counter()
                optimiser.zero_grad()
                loss = loss_of(net(images), labels)
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
                seconds.append(time.perf_counter() - begin)
            return losses, seconds

        (own, _), (other, _) = ours(a.steps), theirs(a.steps)
        apart = max(abs(x - y) / abs(y) for x, y in zip(own, other))
        taken = {"tunesmith": [], "pytorch": []}
        for _ in range(3):
            taken["tunesmith"] += ours(6)[1][1:]
            taken["pytorch"] += theirs(6)[1][1:]
    median = {name: sorted(s)[len(s) // 2] for name, s in taken.items()}
    speed = {name: a.batch / s for name, s in median.items()}
    found = {
        "model": a.model, "batch": a.batch, "threads": a.threads, "tuned": a.tune,
        "losses": own, "pytorch_losses": other, "largest_difference": apart,
        "images_per_s": speed, "gain": median["pytorch"] / median["tunesmith"],
    }
    if a.json:
        print(json.dumps(found))
        return
    for step, (x, y) in enumerate(zip(own, other), 1):
        print(f"step {step:2}: loss {x:.6f}, PyTorch {y:.6f}")
    print(f"largest relative difference {apart:.1e}")
    for name, s in speed.items():
        print(f"{name}: {s:.1f} images/s, median of {len(taken[name])} steps of {a.batch}")
    print(f"{found['gain']:.2f} times PyTorch's speed, {a.threads} threads")


if __name__ == "__main__":
    main()
