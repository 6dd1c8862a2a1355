"""``refcaffe test``: score a model."""

from __future__ import annotations

import numpy as np

from refcaffe.checks import shown
from refcaffe.cli.brew import check, choose_device, log
from refcaffe.cli.flags import Flags
from refcaffe.net import Net
from refcaffe.net.read import read_net_in_state
from refcaffe.proto import caffe_pb2


def run(flags: Flags) -> int:
    """Run a net in TEST phase for so many batches; prints every output and the means."""
    check.gt(len(flags.model), 0, "FLAGS_model.size() > 0", "Need a model definition to score.")
    check.gt(len(flags.weights), 0, "FLAGS_weights.size() > 0", "Need model weights to score.")
    choose_device(flags, named=True)
    net = Net(read_net_in_state(flags.model, caffe_pb2.TEST, flags.level, flags.stages))
    with net, np.errstate(all="ignore"):
        net.copy_from(flags.weights)
        log.info("Running for %d iterations.", flags.iterations)
        scores: list[np.float32] = []
        places: list[int] = []
        loss = np.float32(0)
        for batch in range(flags.iterations):
            loss += net.forward_from_to(0, len(net.layers) - 1)
            values = [(blob, value) for blob in net.output_ids for value in net.all_blobs[blob].cpu_data().flat]
            for i, (blob, value) in enumerate(values):
                if batch == 0:
                    scores.append(value)
                    places.append(blob)
                else:
                    scores[i] += value
                log.info("Batch %d, %s = %s", batch, net.blob_names[blob], shown(value))
        log.info("Loss: %s", shown(loss / np.float32(flags.iterations)))
        for blob, total in zip(places, scores, strict=True):
            mean, weight = total / np.float32(flags.iterations), np.float32(net.loss_weights[blob])
            weighted = f" (* {shown(weight)} = {shown(weight * mean)} loss)" if weight else ""
            log.info("%s = %s%s", net.blob_names[blob], shown(mean), weighted)
    return 0
