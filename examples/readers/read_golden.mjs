// Reads an exported suite and computes two stages of each case again: weights from masked scores, contexts from weights and values.
//
//   node read_golden.mjs results/export/SUITE [TOLERANCE]                      reads the .npy files
//   node read_golden.mjs results/export/SUITE/golden.safetensors [TOLERANCE]   reads that one file
//
// Exit status: 0 if all agree within the tolerance (by default the one that the manifest states), 1 if not,
// 2 if a file is missing or damaged.

import { createHash } from "node:crypto";
import { readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

class Damaged extends Error {}

function check(holds, message) {
  if (!holds) throw new Damaged(message);
}

function half(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24;
  return bits >> 15 ? -size : size;
}

function brain(bits) {
  return new Float32Array(new Uint32Array([bits << 16]).buffer)[0]; // bfloat16 is the upper half of a float32
}

const TYPES = {
  "<f8": [8, (view, at) => view.getFloat64(at, true)],
  "<f4": [4, (view, at) => view.getFloat32(at, true)],
  "<f2": [2, (view, at) => half(view.getUint16(at, true))],
  "<u2": [2, (view, at) => brain(view.getUint16(at, true))],
  "|b1": [1, (view, at) => Number(view.getUint8(at) !== 0)],
};

// {descr, shape, values} of the bytes of a .npy file, with every number as a double.
export function parseNpy(bytes, name) {
  const magic = Buffer.from("\x93NUMPY\x01\x00", "latin1");
  check(bytes.length >= 10 && bytes.subarray(0, 8).equals(magic), `${name}: is not a .npy file of version 1.0`);
  const start = 10 + bytes.readUInt16LE(8);
  check(start <= bytes.length, `${name}: is cut short in its header`);
  const header = bytes.subarray(10, start).toString("latin1");
  const found = /'descr': '(...)', 'fortran_order': False, 'shape': \(([0-9, ]*)\)/.exec(header);
  check(found && TYPES[found[1]], `${name}: holds numbers of a type or an order not read here`);
  const [width, number] = TYPES[found[1]];
  const shape = found[2].split(",").filter((n) => n.trim()).map(Number);
  const size = shape.reduce((a, b) => a * b, 1);
  check(size * width === bytes.length - start, `${name}: does not hold as many numbers as its shape says`);
  const view = new DataView(bytes.buffer, bytes.byteOffset + start);
  return { shape, values: Float64Array.from({ length: size }, (_, i) => number(view, i * width)) };
}

const TENSORS_FILE = "golden.safetensors";
const TENSORS = { F64: "<f8", F32: "<f4", F16: "<f2", BF16: "<u2", BOOL: "|b1" };

// Map from name to {shape, values} of the bytes of a .safetensors file, with every number as a double.
export function parseSafetensors(bytes, name) {
  check(bytes.length >= 8, `${name}: is not a .safetensors file`);
  const start = 8 + Number(bytes.readBigUInt64LE(0));
  check(start <= bytes.length, `${name}: is cut short in its header`);
  let header;
  try {
    header = JSON.parse(bytes.toString("utf8", 8, start));
  } catch {
    throw new Damaged(`${name}: has a header that is no JSON`);
  }
  const { __metadata__, ...tensors } = header;
  const view = new DataView(bytes.buffer, bytes.byteOffset + start, bytes.length - start);
  return new Map(
    Object.entries(tensors).map(([tensor, { dtype, shape, data_offsets }]) => {
      check(Array.isArray(shape) && Array.isArray(data_offsets), `${name}: ${tensor} says no shape or no place`);
      const [from, to] = data_offsets;
      check(TENSORS[dtype], `${name}: ${tensor} holds numbers of a type not read here`);
      const [width, number] = TYPES[TENSORS[dtype]];
      const size = shape.reduce((a, b) => a * b, 1);
      check(from >= 0 && to - from === size * width && to <= view.byteLength, `${name}: ${tensor} does not hold as many numbers as its shape says`);
      return [tensor, { shape, values: Float64Array.from({ length: size }, (_, i) => number(view, from + i * width)) }];
    }),
  );
}

// The bytes of a file of an export.
function readBytes(root, file) {
  try {
    return readFileSync(join(root, file));
  } catch (error) {
    throw new Damaged(`${file}: cannot be read (${error.code})`);
  }
}

function whole(bytes, said) {
  check(createHash("sha256").update(bytes).digest("hex") === said.sha256, `${said.file}: its sha256 is not the manifest's`);
}

// The array that the manifest says of, from its .npy file.
function readNpy(root, said) {
  check(/^plain\/[a-z0-9_]+\/[a-z0-9_]+\.npy$/.test(said.file), `manifest.json: ${JSON.stringify(said.file)} is no file of an export`);
  const bytes = readBytes(root, said.file);
  const array = parseNpy(bytes, said.file);
  whole(bytes, said);
  return array;
}

// All arrays of a case by name, as the manifest says of them; from `tensors`, or from their own files if it is undefined.
function arraysOf(root, name, entry, tensors) {
  const found = {};
  for (const [array, said] of Object.entries(entry.arrays)) {
    const file = tensors ? `${TENSORS_FILE}: ${name}/${array}` : said.file;
    found[array] = tensors ? tensors.get(`${name}/${array}`) : readNpy(root, said);
    check(found[array], `${file}: is missing`);
    check(String(found[array].shape) === String(said.shape), `${file}: its shape is not the manifest's`);
  }
  return found;
}

// One row: exp(score - largest) / sum, where a sink joins the sum alone (-Infinity is none); `empty` is for rows without a key.
function softmax(scores, sink, empty) {
  const largest = scores.reduce((a, b) => Math.max(a, b), sink);
  if (largest === -Infinity) return scores.map(() => empty);
  const e = scores.map((score) => Math.exp(score - largest));
  const sum = e.reduce((a, b) => a + b, Math.exp(sink - largest));
  return e.map((x) => x / sum);
}

function hardmax(scores) {
  const best = scores.indexOf(scores.reduce((a, b) => Math.max(a, b)));
  return scores.map((score, j) => Number(j === best && score > -Infinity));
}

// No softmax: the scores themselves, 0 for a blocked key.
function bare(scores) {
  return scores.map((score) => (score === -Infinity ? 0 : score));
}

function weightsOf(masked, sinks, options) {
  const [heads, queries, keys] = masked.shape.slice(-3);
  const empty = { uniform: 1 / keys, nan: NaN }[options.mask.empty_row] ?? 0;
  const ours = new Float64Array(masked.values.length);
  for (let row = 0; row < ours.length / keys; row++) {
    const scores = masked.values.subarray(row * keys, (row + 1) * keys);
    const sink = options.softmax === "plus_one" ? 0 : sinks ? sinks.values[Math.floor(row / queries) % heads] : -Infinity;
    const kinds = { plain: softmax, plus_one: softmax, hardmax, none: bare };
    ours.set(kinds[options.softmax](scores, sink, empty), row * keys);
  }
  return ours;
}

function contextsOf(weights, values) {
  const [heads, queries, keys] = weights.shape.slice(-3);
  const [groups, , width] = values.shape.slice(-3);
  const rows = weights.values.length / keys;
  const ours = new Float64Array(rows * width);
  for (let row = 0; row < rows; row++) {
    const block = Math.floor(Math.floor(row / queries) / (heads / groups)); // neighbouring heads share one head of values
    for (let j = 0; j < keys; j++)
      for (let c = 0; c < width; c++)
        ours[row * width + c] += weights.values[row * keys + j] * values.values[(block * keys + j) * width + c];
  }
  return ours;
}

// The largest difference of any two elements, by the largest element or 1; equal infinities and two NaN do not differ.
function difference(ours, array) {
  check(ours.length === array.values.length, "the shapes of a case do not fit each other");
  let [worst, largest] = [0, 1];
  array.values.forEach((theirs, i) => {
    if (Number.isFinite(theirs)) largest = Math.max(largest, Math.abs(theirs));
    if (!Object.is(ours[i], theirs) && ours[i] !== theirs) {
      const gap = Math.abs(ours[i] - theirs);
      worst = Math.max(worst, Number.isFinite(gap) ? gap : Infinity);
    }
  });
  return worst / largest;
}

function main(place, given) {
  const one = place.endsWith(TENSORS_FILE);
  const root = one ? dirname(place) : place;
  const manifest = JSON.parse(readFileSync(join(root, "manifest.json"), "utf8"));
  check(manifest.format === 1, `manifest.json: has format ${JSON.stringify(manifest.format)}; this program reads format 1`);
  let tensors;
  if (one) {
    const bytes = readBytes(root, TENSORS_FILE);
    tensors = parseSafetensors(bytes, TENSORS_FILE);
    whole(bytes, manifest.tensors);
  }
  let wrong = false;
  for (const [name, entry] of Object.entries(manifest.cases)) {
    const arrays = arraysOf(root, name, entry, tensors);
    const { masked, weights, contexts } = arrays;
    let worst = difference(weightsOf(masked, arrays.sinks, entry.options), weights);
    const values = arrays.v_extended ?? arrays.present_v ?? arrays.v_heads;
    if (contexts) worst = Math.max(worst, difference(contextsOf(arrays.dropped ?? weights, values), contexts));
    const tolerance = given ?? entry.tolerance;
    wrong ||= !(worst <= tolerance);
    console.log(`${name}: ${Object.keys(arrays).length} arrays, largest difference ${worst.toExponential(1)}${worst <= tolerance ? "" : " WRONG"}`);
  }
  return wrong ? 1 : 0;
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) { // run, and not imported by another program
  const [place, tolerance] = process.argv.slice(2);
  try {
    check(place !== undefined, "usage: node read_golden.mjs EXPORT_FOLDER [TOLERANCE]");
    process.exitCode = main(place, tolerance === undefined ? undefined : Number(tolerance));
  } catch (error) {
    const known = error instanceof Damaged;
    console.error(known ? error.message : `manifest.json: of ${place} is missing or damaged (${error.message.split("\n")[0]})`);
    process.exitCode = 2;
  }
}
