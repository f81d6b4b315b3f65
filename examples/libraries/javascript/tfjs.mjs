import * as tf from "@tensorflow/tfjs";
import { floats, serve } from "./lines.mjs";

const tensor = (given) => tf.tensor(floats(given), given.shape);

serve(({ query, key, value, added, scale }) =>
  tf.tidy(() => {
    let scores = tf.matMul(tensor(query), tensor(key), false, true).mul(scale);
    if (added) scores = scores.add(tensor(added));
    const contexts = tf.matMul(tf.softmax(scores), tensor(value));
    return { shape: contexts.shape, data: contexts.dataSync() };
  }),
);
