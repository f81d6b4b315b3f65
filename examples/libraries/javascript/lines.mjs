// The other end of node.py: calls `answer(given)` for each line that comes in, and writes the {shape, data} that it returns.

import { createInterface } from "node:readline";

export const floats = ({ data }) => new Float32Array(Uint8Array.from(Buffer.from(data, "base64")).buffer);

async function told(answer, line) {
  try {
    const { shape, data } = await answer(JSON.parse(line));
    return { shape, data: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64") };
  } catch (error) {
    return { error: error.message };
  }
}

export async function serve(answer) {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await told(answer, line)) + "\n");
  }
}
