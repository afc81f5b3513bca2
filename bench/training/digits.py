#!/usr/bin/env python3
"""Trains a small convolutional network on scikit-learn's digits by Tunesmith and by PyTorch, from equal weights on
equal batches in equal order.

usage: digits.py TUNESMITH [--epochs N] [--batch N] [--threads N] [--dropout RATIO] [--seed N]
needs (PyPI): torch onnx onnxscript scikit-learn

Prints the loss of each epoch of both, and the share of unseen images that each network classifies rightly;
Tunesmith's is run by Tunesmith. With a dropout, masks differ between both, and so do the losses.
"""
import argparse
import json
import os
import subprocess
import tempfile
import warnings


def network(dropout):
    import torch.nn as nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.Conv2d(16, 32, 1, bias=False),
        nn.BatchNorm2d(32), nn.SiLU(), nn.AvgPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.Hardswish(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(128, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10),
    )


def digits(test):
    """Images and labels to train by, and `test` of each to judge by, of 1797 images of 8 x 8."""
    import numpy as np
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 1, 8, 8) / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order], labels[order].astype("int64")
    return images[test:], labels[test:], images[:test], labels[:test]


def by_pytorch(net, images, labels, a):
    """The mean loss of each epoch; the network is trained."""
    import torch

    optimiser = torch.optim.SGD(net.parameters(), lr=a.rate, momentum=0.9)
    loss_of, means = torch.nn.CrossEntropyLoss(), []
    for _ in range(a.epochs):
        losses = []
        for at in range(0, len(labels) - a.batch + 1, a.batch):
            optimiser.zero_grad()
            loss = loss_of(net(images[at : at + a.batch]), labels[at : at + a.batch])
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        means.append(sum(losses) / len(losses))
    return means


def export(net, images, file, training):
    import torch

    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    torch.onnx.export(
        net.train(training), (images,), file, input_names=["image"], output_names=["logits"], dynamo=False,
        training=mode, do_constant_folding=False,
    )


def load(net, folder):
    """Puts the states of `train --out` into the network."""
    import numpy as np
    import torch

    for name, value in net.state_dict().items():
        files = [f for f in os.listdir(folder) if f.split(".", 1)[1] == f"{name}.npy"]
        if files:
            value.copy_(torch.from_numpy(np.load(os.path.join(folder, files[0]))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tunesmith")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()

    import copy

    import numpy as np
    import torch

    warnings.filterwarnings("ignore")
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    images, labels, unseen, answers = digits(360)
    net = network(a.dropout)
    own = copy.deepcopy(net)
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        common = ["--threads", str(a.threads)]
        call = lambda *words: subprocess.run(
            [a.tunesmith, *words, *common], check=True, stdout=subprocess.PIPE
        ).stdout
        export(copy.deepcopy(net), torch.from_numpy(images[: a.batch]), at("net.onnx"), True)
        np.save(at("images.npy"), images)
        np.save(at("labels.npy"), labels)
        call(
            "compile", at("net.onnx"), "--train", "--learning-rate", str(a.rate), "--momentum", "0.9",
            "--dropout-seed", str(a.seed), "--out", at("step.tsm"),
        )
        found = json.loads(call(
            "train", at("step.tsm"), "--input", f"image={at('images.npy')}", "--input",
            f"labels={at('labels.npy')}", "--epochs", str(a.epochs), "--out", at("states"), "--json",
        ))
        load(own, at("states"))
        export(own, torch.from_numpy(unseen), at("trained.onnx"), False)
        np.save(at("unseen.npy"), unseen)
        call("compile", at("trained.onnx"), "--out", at("trained.tsm"))
        call("run", at("trained.tsm"), "--input", f"image={at('unseen.npy')}", "--out", at("logits.npy"))
        logits = np.load(at("logits.npy"))
    means = [e["loss"] for e in found["epochs"]]
    net.train()
    others = by_pytorch(net, torch.from_numpy(images), torch.from_numpy(labels), a)
    with torch.no_grad():
        theirs = net.eval()(torch.from_numpy(unseen)).numpy()
    right = lambda logits: float((logits.argmax(1) == answers).mean())
    report = {
        "losses": means, "pytorch_losses": others, "accuracy": right(logits), "pytorch_accuracy": right(theirs),
    }
    if a.json:
        print(json.dumps(report))
        return
    for epoch, (x, y) in enumerate(zip(means, others), 1):
        print(f"epoch {epoch:2}: mean loss {x:.5f}, PyTorch {y:.5f}")
    print(f"accuracy on {len(answers)} unseen images: {right(logits):.4f}, PyTorch {right(theirs):.4f}")


if __name__ == "__main__":
    main()
