//! Seeded bytes of different kinds.
//!
//! | corpus   | represents                      | compression by zstd -3      |
//! |----------|---------------------------------|-----------------------------|
//! | `Random` | media, archives, encrypted data | none                        |
//! | `Text`   | prose, logs, tables             | see [`Corpus::Text`]        |
//! | `Zeros`  | disk images, padding            | almost to nothing           |
//! | `Source` | program text                    | to about a fifth            |

use std::{fmt, sync::LazyLock};

use crate::rng::{Rng, mix};

/// The kind of bytes to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corpus {
    /// Bytes that do not compress.
    Random,
    /// English-like words; frequent ones are far more frequent than rare ones.
    ///
    /// Calibrated: 10,000 files of 4 KiB, packed with `tar | zstd -3`, take about 14.9 MB, like the
    /// data on which snap's targets were measured.
    Text,
    /// Zero bytes only.
    Zeros,
    /// Program text: indented lines, keywords, names that are used repeatedly.
    Source,
}

impl Corpus {
    /// Every corpus, for tests and benchmarks over all of them.
    pub const ALL: [Self; 4] = [Self::Random, Self::Text, Self::Zeros, Self::Source];

    /// Generates `len` bytes, the same ones each time.
    pub fn make(self, len: usize) -> Vec<u8> {
        self.make_seeded(len, 0)
    }

    /// Generates `len` bytes for `seed`.
    pub fn make_seeded(self, len: usize, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(mix(seed, self as u64));
        match self {
            Self::Random => {
                let mut out = vec![0; len];
                rng.fill(&mut out);
                out
            }
            Self::Text => cut_to(len, |out| sentence(out, &mut rng)),
            Self::Zeros => vec![0; len],
            Self::Source => {
                let names: Vec<usize> = (0..24).map(|_| rng.index(VOCABULARY_WORDS)).collect();
                let mut depth = 0;
                cut_to(len, |out| source_line(out, &mut rng, &names, &mut depth))
            }
        }
    }
}

impl fmt::Display for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Random => "random",
            Self::Text => "text",
            Self::Zeros => "zeros",
            Self::Source => "source",
        })
    }
}

const VOCABULARY_WORDS: usize = 2_500;

/// How fast the frequency of words falls with their rank: the weight of rank r is 1 / (r +
/// [`ZIPF_SHIFT`]) ^ `ZIPF_EXPONENT`. These two constants calibrate [`Corpus::Text`]; English has
/// an exponent close to 1.
const ZIPF_EXPONENT: f64 = 1.0;
const ZIPF_SHIFT: f64 = 2.7;

struct Vocabulary {
    words: Vec<String>,
    /// Cumulative frequency of the words up to and including this one; the last one is 1.
    cumulated: Vec<f64>,
}

static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let mut rng = Rng::new(0x5eed_0f70_7265);
    let mut known = std::collections::HashSet::new();
    let mut words = Vec::with_capacity(VOCABULARY_WORDS);
    while words.len() < VOCABULARY_WORDS {
        // Frequent words are short, as in natural languages.
        let syllables = match words.len() {
            0..100 => 1,
            100..1_000 => 1 + rng.index(2),
            _ => 2 + rng.index(2),
        };
        let word: String = (0..syllables).map(|_| syllable(&mut rng)).collect();
        if known.insert(word.clone()) {
            words.push(word);
        }
    }
    let weights =
        (0..words.len()).map(|rank| (rank as f64 + 1.0 + ZIPF_SHIFT).powf(-ZIPF_EXPONENT));
    let total: f64 = weights.clone().sum();
    let cumulated = weights
        .scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        })
        .collect();
    Vocabulary { words, cumulated }
});

impl Vocabulary {
    fn pick(&self, rng: &mut Rng) -> &str {
        let at = rng.unit();
        let rank = self.cumulated.partition_point(|&share| share < at);
        &self.words[rank.min(self.words.len() - 1)]
    }
}

fn syllable(rng: &mut Rng) -> String {
    const ONSETS: [&str; 22] = [
        "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "tr",
        "ch", "sh", "th", "pl", "",
    ];
    const NUCLEI: [&str; 9] = ["a", "e", "i", "o", "u", "ea", "ou", "e", "a"];
    const CODAS: [&str; 12] = ["", "", "", "n", "r", "s", "t", "l", "nd", "ng", "st", "d"];
    let parts: [&[&str]; 3] = [&ONSETS, &NUCLEI, &CODAS];
    parts.iter().map(|choices| choices[rng.index(choices.len())]).collect()
}

/// Calls `append` until there are at least `len` bytes, and truncates the result.
fn cut_to(len: usize, mut append: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + 4096);
    while out.len() < len {
        append(&mut out);
    }
    out.truncate(len);
    out
}

fn sentence(out: &mut Vec<u8>, rng: &mut Rng) {
    let start = out.len();
    let words = 4 + rng.index(16);
    for position in 0..words {
        if position > 0 {
            out.extend_from_slice(if rng.below(12) == 0 { b", " } else { b" " });
        }
        out.extend_from_slice(VOCABULARY.pick(rng).as_bytes());
    }
    out[start].make_ascii_uppercase();
    out.extend_from_slice(if rng.below(5) == 0 { b".\n" } else { b". " });
}

fn source_line(out: &mut Vec<u8>, rng: &mut Rng, names: &[usize], depth: &mut usize) {
    let name = |rng: &mut Rng| {
        // Mostly the file's own names, sometimes a new one.
        let rank = if rng.below(5) == 0 {
            rng.index(VOCABULARY_WORDS)
        } else {
            names[rng.index(names.len())]
        };
        VOCABULARY.words[rank].as_str()
    };
    let (first, second, third) = (name(rng), name(rng), name(rng));
    let line = match rng.below(9) {
        0 if *depth < 6 => format!("fn {first}_{second}({third}: &mut Self) -> Result<u32> {{"),
        1 if *depth < 6 => format!("if {first}.{second}() != {third}.len() {{"),
        2..4 if *depth > 0 => "}".to_owned(),
        4 => format!("// The {first} of a {second} is its {third}."),
        5 => format!("let {first} = {second}.{third}({})?;", rng.below(4096)),
        6 => format!("self.{first}_{second} += {third} as u64;"),
        7 => format!("return Err({first}::{second}({third}));"),
        _ => format!("assert_eq!({first}.{second}, {third}[{}]);", rng.below(64)),
    };
    if line == "}" {
        *depth -= 1;
    }
    out.extend(std::iter::repeat_n(b' ', *depth * 4));
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
    if line.ends_with('{') {
        *depth += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_has_the_requested_length_and_is_deterministic() {
        for corpus in Corpus::ALL {
            for len in [0, 1, 4096, 100_001] {
                let made = corpus.make(len);
                assert_eq!(made.len(), len, "{corpus}");
                assert_eq!(made, corpus.make(len), "{corpus}");
            }
        }
    }

    #[test]
    fn different_seeds_give_different_bytes() {
        for corpus in [Corpus::Random, Corpus::Text, Corpus::Source] {
            assert_ne!(corpus.make_seeded(500, 1), corpus.make_seeded(500, 2), "{corpus}");
        }
    }

    #[test]
    fn text_is_made_of_words_of_uneven_frequency() {
        let text = String::from_utf8(Corpus::Text.make(200_000)).unwrap().to_lowercase();
        let count = |word: &str| text.split([' ', ',', '.', '\n']).filter(|w| *w == word).count();
        let vocabulary = &*VOCABULARY;
        assert!(count(&vocabulary.words[0]) > 4 * count(&vocabulary.words[100]).max(1));
    }

    #[test]
    fn a_corpus_prints_its_name_padded() {
        assert_eq!(format!("[{:>7}]", Corpus::Text), "[   text]");
    }
}
