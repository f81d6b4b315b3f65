// Reads the golden.safetensors of an exported suite and computes two stages of each case again: weights from masked scores, contexts
// from weights and values. Needs the standard library alone.
//
//   rustc --edition 2021 -O read_golden.rs
//   ./read_golden results/export/SUITE [TOLERANCE]
//
// Exit status: 0 if all agree within the tolerance (by default the one that the manifest states), 1 if not,
// 2 if a file is missing or damaged. `sha256sum -c SHA256SUMS` in the folder says whether its files are whole.

use std::collections::HashMap;
use std::process::exit;

type Result<T> = std::result::Result<T, String>;

#[derive(Debug)]
enum Json {
    Null,
    Bool,
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    fn get(&self, key: &str) -> Result<&Json> {
        match self {
            Json::Map(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value).ok_or(format!("there is no {key}")),
            _ => Err(format!("where {key} should be is no mapping")),
        }
    }

    fn pairs(&self) -> Result<&[(String, Json)]> {
        if let Json::Map(pairs) = self { Ok(pairs) } else { Err("there is no mapping".into()) }
    }

    fn text(&self) -> Result<&str> {
        if let Json::Text(text) = self { Ok(text) } else { Err(format!("{self:?} should be text")) }
    }

    fn number(&self) -> Result<f64> {
        if let Json::Number(number) = self { Ok(*number) } else { Err(format!("{self:?} should be a number")) }
    }

    fn sizes(&self) -> Result<Vec<usize>> {
        let Json::List(items) = self else { return Err(format!("{self:?} should be a list of sizes")) };
        items.iter().map(|item| item.number().map(|n| n as usize)).collect()
    }
}

/// A parser of strict JSON: what is left to read, as bytes.
struct Parser<'a>(&'a [u8]);

impl Parser<'_> {
    fn parse(bytes: &[u8]) -> Result<Json> {
        let mut parser = Parser(bytes);
        let value = parser.value(0)?;
        if parser.peek() == 0 { Ok(value) } else { Err("is no JSON".into()) }
    }

    /// The next byte that is no white space; 0 at the end.
    fn peek(&mut self) -> u8 {
        while self.0.first().is_some_and(u8::is_ascii_whitespace) {
            self.0 = &self.0[1..];
        }
        self.0.first().copied().unwrap_or(0)
    }

    fn take(&mut self, word: &str) -> Result<()> {
        self.peek();
        self.0 = self.0.strip_prefix(word.as_bytes()).ok_or("is no JSON")?;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > 64 {
            return Err("is nested too deeply".into());
        }
        match self.peek() {
            b'{' => self.items(b'}', |p| Ok((p.string()?, p.take(":").and_then(|()| p.value(depth + 1))?))).map(Json::Map),
            b'[' => self.items(b']', |p| p.value(depth + 1)).map(Json::List),
            b'"' => self.string().map(Json::Text),
            b't' => self.take("true").map(|()| Json::Bool),
            b'f' => self.take("false").map(|()| Json::Bool),
            b'n' => self.take("null").map(|()| Json::Null),
            _ => {
                let end = self.0.iter().position(|b| !b"+-.0123456789eE".contains(b)).unwrap_or(self.0.len());
                let (digits, rest) = self.0.split_at(end);
                self.0 = rest;
                std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).map(Json::Number).ok_or("is no JSON".into())
            }
        }
    }

    fn items<T>(&mut self, end: u8, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.0 = &self.0[1..];
        while self.peek() != end {
            if !found.is_empty() {
                self.take(",")?;
            }
            found.push(item(self)?);
        }
        self.0 = &self.0[1..];
        Ok(found)
    }

    fn string(&mut self) -> Result<String> {
        self.take("\"")?;
        let mut bytes = Vec::new();
        loop {
            let (&first, rest) = self.0.split_first().ok_or("is no JSON")?;
            self.0 = rest;
            match first {
                b'"' => return String::from_utf8(bytes).map_err(|_| "is no UTF-8".into()),
                b'\\' => {
                    let (&kind, rest) = self.0.split_first().ok_or("is no JSON")?;
                    self.0 = rest;
                    let code = match kind {
                        b'n' => 10,
                        b't' => 9,
                        b'r' => 13,
                        b'b' => 8,
                        b'f' => 12,
                        b'u' => {
                            let digits = self.0.get(..4).and_then(|four| std::str::from_utf8(four).ok()).ok_or("is no JSON")?;
                            let code = u32::from_str_radix(digits, 16).map_err(|_| "is no JSON")?;
                            self.0 = &self.0[4..];
                            code
                        }
                        other => other.into(),
                    };
                    bytes.extend(char::from_u32(code).unwrap_or('\u{fffd}').to_string().bytes());
                }
                other => bytes.push(other),
            }
        }
    }
}

/// An array of any type, its numbers as doubles.
struct Tensor {
    shape: Vec<usize>,
    values: Vec<f64>,
}

fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        31 => if fraction == 0.0 { f64::INFINITY } else { f64::NAN },
        0 => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// {name: array} of the bytes of a .safetensors file: the length of the header in 8 bytes, the header in JSON, the numbers.
fn tensors(bytes: &[u8]) -> Result<HashMap<String, Tensor>> {
    let length = bytes.get(..8).ok_or("is no .safetensors file")?;
    let length = u64::from_le_bytes(length.try_into().unwrap());
    let start = usize::try_from(length).ok().and_then(|n| n.checked_add(8)).filter(|n| *n <= bytes.len()).ok_or("is cut short in its header")?;
    let mut found = HashMap::new();
    for (name, said) in Parser::parse(&bytes[8..start])?.pairs()?.iter().filter(|(name, _)| name != "__metadata__") {
        let (width, number): (usize, fn(&[u8]) -> f64) = match said.get("dtype")?.text()? {
            "F64" => (8, |b| f64::from_le_bytes(b.try_into().unwrap())),
            "F32" => (4, |b| f32::from_le_bytes(b.try_into().unwrap()).into()),
            "F16" => (2, |b| half(u16::from_le_bytes([b[0], b[1]]))),
            "BF16" => (2, |b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16).into()), // the upper half of a float32
            "BOOL" => (1, |b| f64::from(b[0] != 0)),
            other => return Err(format!("{name} holds numbers of type {other}, not read here")),
        };
        let (shape, range) = (said.get("shape")?.sizes()?, said.get("data_offsets")?.sizes()?);
        let size = shape.iter().try_fold(width, |a, b| a.checked_mul(*b));
        let data = match range[..] {
            [from, to] if from <= to && size == Some(to - from) => bytes[start..].get(from..to),
            _ => None,
        };
        let data = data.ok_or(format!("{name} does not hold as many numbers as its shape says"))?;
        found.insert(name.clone(), Tensor { shape, values: data.chunks_exact(width).map(number).collect() });
    }
    Ok(found)
}

/// One row: exp(score - largest) / sum, where a sink joins the sum alone (-infinity is none); `empty` is for rows without a key.
fn softmax(scores: &[f64], sink: f64, empty: f64) -> Vec<f64> {
    let most = scores.iter().fold(sink, |a, b| if b.is_nan() || *b > a { *b } else { a });
    if most == f64::NEG_INFINITY {
        return vec![empty; scores.len()];
    }
    let e: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum = e.iter().sum::<f64>() + (sink - most).exp();
    e.iter().map(|x| x / sum).collect()
}

fn hardmax(scores: &[f64]) -> Vec<f64> {
    let best = (0..scores.len()).fold(0, |best, j| if scores[j] > scores[best] { j } else { best });
    (0..scores.len()).map(|j| f64::from(j == best && scores[j] > f64::NEG_INFINITY)).collect()
}

/// No softmax: the scores themselves, 0 for a blocked key.
fn bare(scores: &[f64]) -> Vec<f64> {
    scores.iter().map(|score| if *score == f64::NEG_INFINITY { 0.0 } else { *score }).collect()
}

/// The last three sizes of an array [..., H, L, n]; an error if it has fewer, or one of them is 0.
fn last_three(array: &Tensor) -> Result<(usize, usize, usize)> {
    match array.shape[..] {
        [.., a, b, c] if a * b * c > 0 => Ok((a, b, c)),
        _ => Err("an array has not the shape [..., H, L, n]".into()),
    }
}

fn weights_of(masked: &Tensor, sinks: Option<&Tensor>, options: &Json) -> Result<Vec<f64>> {
    let (heads, queries, keys) = last_three(masked)?;
    let empty = match options.get("mask")?.get("empty_row")?.text()? {
        "uniform" => 1.0 / keys as f64,
        "nan" => f64::NAN,
        _ => 0.0, // of the others, a row without a key is 0 or an error
    };
    let sink = |row: usize| sinks.map_or(Ok(f64::NEG_INFINITY), |s| s.values.get(row / queries % heads).copied().ok_or("sinks are too few"));
    let kind = options.get("softmax")?.text()?;
    let mut ours = Vec::with_capacity(masked.values.len());
    for (row, scores) in masked.values.chunks(keys).enumerate() {
        ours.extend(match kind {
            "plain" => softmax(scores, sink(row)?, empty),
            "plus_one" => softmax(scores, 0.0, empty),
            "hardmax" => hardmax(scores),
            "none" => bare(scores),
            other => return Err(format!("there is no softmax {other}")),
        });
    }
    Ok(ours)
}

fn contexts_of(weights: &Tensor, values: &Tensor) -> Result<Vec<f64>> {
    let ((heads, queries, keys), (groups, tokens, width)) = (last_three(weights)?, last_three(values)?);
    let rows = weights.values.len() / keys;
    if tokens != keys || heads % groups != 0 || values.values.len() * heads * queries != rows * groups * keys * width {
        return Err("the shapes of weights and values do not fit each other".into());
    }
    let mut ours = vec![0.0; rows * width];
    for (row, mean) in ours.chunks_mut(width).enumerate() {
        let shared = row / queries / (heads / groups); // counted through the batch; neighbouring heads share one head of values
        for j in 0..keys {
            for (c, sum) in mean.iter_mut().enumerate() {
                *sum += weights.values[row * keys + j] * values.values[(shared * keys + j) * width + c];
            }
        }
    }
    Ok(ours)
}

/// The largest difference of any two elements, by the largest element or 1; equal infinities and two NaN do not differ.
fn difference(ours: &[f64], theirs: &Tensor) -> Result<f64> {
    if ours.len() != theirs.values.len() {
        return Err("the shapes of a case do not fit each other".into());
    }
    let largest = theirs.values.iter().filter(|x| x.is_finite()).fold(1f64, |a, b| a.max(b.abs()));
    let gaps = ours.iter().zip(&theirs.values).filter(|(a, b)| a != b && !(a.is_nan() && b.is_nan()));
    Ok(gaps.map(|(a, b)| (a - b).abs()).fold(0f64, |a, b| if b.is_finite() { a.max(b) } else { f64::INFINITY }) / largest)
}

fn compare(root: &str, given: Option<f64>) -> Result<bool> {
    let read = |name: &str| std::fs::read(format!("{root}/{name}")).map_err(|error| format!("{name}: cannot be read ({error})"));
    let manifest = Parser::parse(&read("manifest.json")?).map_err(|error| format!("manifest.json: {error}"))?;
    let arrays = tensors(&read("golden.safetensors")?).map_err(|error| format!("golden.safetensors: {error}"))?;
    let mut agreed = true;
    let format = manifest.get("format").and_then(Json::number);
    if format != Ok(1.0) {
        return Err(format!("manifest.json: has format {format:?}; this program reads format 1"));
    }
    for (case, entry) in manifest.get("cases").and_then(Json::pairs).map_err(|error| format!("manifest.json: {error}"))? {
        let worst = recomputed(case, entry, &arrays).map_err(|error| format!("{case}: {error}"))?;
        let tolerance = given.map_or_else(|| entry.get("tolerance").and_then(Json::number), Ok)?;
        println!("{case}: largest difference {worst:.1e}{}", if worst <= tolerance { "" } else { " WRONG" });
        agreed &= worst <= tolerance;
    }
    Ok(agreed)
}

/// The largest difference of the weights and contexts of a case from those that are computed here.
fn recomputed(case: &str, entry: &Json, arrays: &HashMap<String, Tensor>) -> Result<f64> {
    for (name, said) in entry.get("arrays")?.pairs()? {
        let array = arrays.get(&format!("{case}/{name}")).ok_or(format!("there is no {name} in golden.safetensors"))?;
        if array.shape != said.get("shape")?.sizes()? {
            return Err(format!("the shape of {name} is not the manifest's"));
        }
    }
    let found = |name: &str| arrays.get(&format!("{case}/{name}"));
    let (masked, weights) = (found("masked").ok_or("there is no masked")?, found("weights").ok_or("there is no weights")?);
    let worst = difference(&weights_of(masked, found("sinks"), entry.get("options")?)?, weights)?;
    let Some(contexts) = found("contexts") else { return Ok(worst) }; // a case that has no values
    let values = found("v_extended").or(found("present_v")).or(found("v_heads")).ok_or("there is no v_heads")?;
    Ok(worst.max(difference(&contexts_of(found("dropped").unwrap_or(weights), values)?, contexts)?))
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (root, tolerance) = match &words[..] {
        [root] => (root, None),
        [root, tolerance] if tolerance.parse::<f64>().is_ok() => (root, tolerance.parse().ok()),
        _ => {
            eprintln!("usage: read_golden EXPORT_FOLDER [TOLERANCE]");
            exit(2);
        }
    };
    match compare(root, tolerance) {
        Ok(agreed) => exit(i32::from(!agreed)),
        Err(message) => {
            eprintln!("{root}: {message}");
            exit(2);
        }
    }
}
