# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small training on made-up pictures, within the memory that this pod asked for.

GPUSHARE_EPOCHS: how many, 0 for as long as the pod lives. GPUSHARE_MEMORY_LIMIT_MIB: TensorFlow's
limit, empty for all of the GPU.
"""

import os

import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
if not gpus:
    raise SystemExit("TensorFlow sees no GPU here: the pod wants a share of one, or a whole one")
limit = os.environ["GPUSHARE_MEMORY_LIMIT_MIB"]
if limit:
    share = tf.config.LogicalDeviceConfiguration(memory_limit=int(limit))
    tf.config.set_logical_device_configuration(gpus[0], [share])
pictures = tf.random.uniform((2048, 28, 28, 1))
labels = tf.random.uniform((2048,), maxval=10, dtype=tf.int32)
model = tf.keras.Sequential(
    [
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
epochs, done = int(os.environ["GPUSHARE_EPOCHS"]), 0
while epochs == 0 or done < epochs:
    model.fit(pictures, labels, batch_size=128, verbose=2)
    done += 1
