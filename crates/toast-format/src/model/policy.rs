//! Per-value policies: whether compression is worthwhile for a value that PostgreSQL would compress.
//!
//! A policy filters the results that the server would accept: it sees the sizes after compression, and accepts or
//! rejects them. Rejected values are treated as PostgreSQL treats incompressible ones.

use std::fmt;
use std::str::FromStr;

use super::cost::Prices;
use crate::codec::Method;
pub use crate::disk::varlena::{COMPRESSED_HEADER_SIZE, VARLENA_HEADER_SIZE};
use crate::disk::{PageSize, Storage};

/// A fraction of a value's raw size, above 0 and at most 1, in steps of 1/10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio(u16);

impl Ratio {
    /// The default of `ratio`.
    pub const NINETY_FIVE: Ratio = Ratio(9500);
    /// The default of `hybrid`.
    pub const NINETY: Ratio = Ratio(9000);

    /// Returns `None` unless `part` is above 0 and at most 1.
    pub fn new(part: f64) -> Option<Ratio> {
        let steps = (part * 10_000.0).round();
        (part <= 1.0 && steps >= 1.0).then_some(Ratio(steps as u16))
    }

    /// The fraction as a number from 0 to 1.
    pub fn value(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }

    /// Whether `part` is at most this fraction of `whole`.
    pub fn holds(self, part: u32, whole: u32) -> bool {
        u64::from(part) * 10_000 <= u64::from(whole) * u64::from(self.0)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // At least two decimals are written.
        let text = format!("{:.4}", self.value());
        let short = text.strip_suffix("00").or_else(|| text.strip_suffix('0')).unwrap_or(&text);
        f.write_str(short)
    }
}

/// Which compressed values are kept. Sizes are those in the TOAST relation; a compressed value that fits in the row has
/// no chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// All that the server keeps, as in stock PostgreSQL.
    #[default]
    Always,
    /// None: values are stored uncompressed.
    Never,
    /// Those that save at least this number of chunks.
    ChunkSaving {
        /// The number, at least 1.
        chunks: u32,
    },
    /// Those whose size is at most this fraction of the raw size.
    Ratio(Ratio),
    /// All below this number of chunks; from this number on, those that save a chunk.
    ChunkFloor {
        /// The number, at least 1.
        chunks: u32,
    },
    /// Those whose size is at most this fraction of the raw size, and those whose raw form would need more additional
    /// chunks than the binary logarithm of its chunks.
    Hybrid(Ratio),
    /// Those that are cheaper than the raw form according to the cost model.
    Best,
}

/// The names of policies, for error messages.
const POLICIES: &str = "always, never, chunk-saving[=chunks], ratio[=part], chunk-floor[=chunks], \
                        hybrid[=part] or best";
/// More chunks than the longest possible value has.
const MAX_CHUNKS: u32 = 1_000_000;

/// Why a text is not a policy or a target, or why settings contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No policy of this name.
    #[error("unknown policy \"{0}\": expected {POLICIES}")]
    UnknownPolicy(String),
    /// `always`, `never` and `best` take no parameter.
    #[error("policy \"{name}\" takes no parameter, got \"{got}\"")]
    NoParameter {
        /// The policy's name as given.
        name: String,
        /// The parameter as given.
        got: String,
    },
    /// The parameter is not a number of chunks.
    #[error(
        "policy \"{name}\" takes a number of chunks from 1 to {MAX_CHUNKS}, got \"{got}\" \
         (as in {name}={example})"
    )]
    Chunks {
        /// The name of a policy that takes chunks.
        name: &'static str,
        /// The parameter as given.
        got: String,
        /// An example of a valid number.
        example: u32,
    },
    /// The parameter is not a fraction of the raw size.
    #[error(
        "policy \"{name}\" takes a part of the raw size over 0 and at most 1, got \"{got}\" \
         (as in {name}={example})"
    )]
    Part {
        /// The name of a policy that takes a fraction.
        name: &'static str,
        /// The parameter as given.
        got: String,
        /// An example of a valid fraction.
        example: Ratio,
    },
    /// A number that is not a valid `toast_tuple_target`.
    #[error("invalid toast_tuple_target \"{got}\": expected a whole number from {min} to {max}")]
    Target {
        /// The text as given.
        got: String,
        /// The minimum that a server accepts.
        min: u16,
        /// The maximum for the page size.
        max: usize,
    },
    /// The storage never compresses, so a policy has nothing to decide.
    #[error("policy \"{policy}\" needs storage extended or main, not {}", storage.name())]
    NothingToDecide {
        /// The policy, which needs compressed values.
        policy: Policy,
        /// The storage, which never compresses.
        storage: Storage,
    },
}

fn chunks_parameter(
    name: &'static str,
    parameter: Option<&str>,
    default: u32,
) -> Result<u32, SettingsError> {
    let Some(got) = parameter else { return Ok(default) };
    match got.parse() {
        Ok(chunks) if (1..=MAX_CHUNKS).contains(&chunks) => Ok(chunks),
        _ => Err(SettingsError::Chunks { name, got: got.into(), example: default }),
    }
}

fn ratio_parameter(
    name: &'static str,
    parameter: Option<&str>,
    default: Ratio,
) -> Result<Ratio, SettingsError> {
    let Some(got) = parameter else { return Ok(default) };
    let part = match got.strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => got.parse(),
    };
    part.ok().and_then(Ratio::new).ok_or_else(|| SettingsError::Part {
        name,
        got: got.into(),
        example: default,
    })
}

impl FromStr for Policy {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Policy, SettingsError> {
        let (name, parameter) = match text.split_once('=') {
            Some((name, parameter)) => (name.trim(), Some(parameter.trim())),
            None => (text.trim(), None),
        };
        let policy = match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "always" => Policy::Always,
            "never" => Policy::Never,
            "best" => Policy::Best,
            "chunk-saving" => {
                let chunks = chunks_parameter("chunk-saving", parameter, 1)?;
                return Ok(Policy::ChunkSaving { chunks });
            }
            "chunk-floor" => {
                let chunks = chunks_parameter("chunk-floor", parameter, 100)?;
                return Ok(Policy::ChunkFloor { chunks });
            }
            "ratio" => {
                return ratio_parameter("ratio", parameter, Ratio::NINETY_FIVE).map(Policy::Ratio);
            }
            "hybrid" => {
                return ratio_parameter("hybrid", parameter, Ratio::NINETY).map(Policy::Hybrid);
            }
            _ => return Err(SettingsError::UnknownPolicy(name.into())),
        };
        match parameter {
            None => Ok(policy),
            Some(got) => Err(SettingsError::NoParameter { name: name.into(), got: got.into() }),
        }
    }
}

impl fmt::Display for Policy {
    /// Writes the policy in the form that is parsed; a default parameter is omitted only for `chunk-saving`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Always => f.write_str("always"),
            Policy::Never => f.write_str("never"),
            Policy::ChunkSaving { chunks: 1 } => f.write_str("chunk-saving"),
            Policy::ChunkSaving { chunks } => write!(f, "chunk-saving={chunks}"),
            Policy::Ratio(part) => write!(f, "ratio={part}"),
            Policy::ChunkFloor { chunks } => write!(f, "chunk-floor={chunks}"),
            Policy::Hybrid(part) => write!(f, "hybrid={part}"),
            Policy::Best => f.write_str("best"),
        }
    }
}

/// The compression method of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MethodChoice {
    /// Always the same method.
    One(Method),
    /// For each value, the one with the smaller result; lz4 if both are equal.
    Either,
}

impl FromStr for MethodChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<MethodChoice, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "pglz" => Ok(MethodChoice::One(Method::Pglz)),
            "lz4" => Ok(MethodChoice::One(Method::Lz4)),
            "either" => Ok(MethodChoice::Either),
            _ => {
                Err(format!("unknown compression method \"{text}\": expected pglz, lz4 or either"))
            }
        }
    }
}

impl fmt::Display for MethodChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MethodChoice::One(method) => method.name(),
            MethodChoice::Either => "either",
        })
    }
}

impl MethodChoice {
    /// The methods to try.
    pub fn methods(self) -> &'static [Method] {
        match self {
            MethodChoice::One(Method::Pglz) => &[Method::Pglz],
            MethodChoice::One(Method::Lz4) => &[Method::Lz4],
            MethodChoice::Either => &[Method::Pglz, Method::Lz4],
        }
    }
}

/// The results of compression for one value: the size of the datum, including [`COMPRESSED_HEADER_SIZE`]; `None` if the
/// server does not accept the result or the method was not tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct CompressedSizes {
    /// Bytes of the datum with pglz.
    pub pglz: Option<u32>,
    /// Bytes of the datum with lz4.
    pub lz4: Option<u32>,
}

impl CompressedSizes {
    /// The size with `method`.
    pub fn get(self, method: Method) -> Option<u32> {
        match method {
            Method::Pglz => self.pglz,
            Method::Lz4 => self.lz4,
        }
    }

    /// Sets the size with `method`.
    pub fn set(&mut self, method: Method, size: Option<u32>) {
        match method {
            Method::Pglz => self.pglz = size,
            Method::Lz4 => self.lz4 = size,
        }
    }
}

/// A policy's decision about one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MethodRule {
    /// The value stays uncompressed.
    Uncompressed,
    /// The value is compressed.
    Compressed {
        /// The method of the kept stream.
        method: Method,
        /// The size of the datum, including its header.
        size: u32,
    },
}

/// What a decision depends on in addition to the value's sizes.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// The relation's page size.
    pub page: PageSize,
    /// The space for a row's data: the tuple target minus the tuple header. A compressed datum of at most this size is
    /// assumed to stay in the row.
    pub inline_limit: u32,
    /// The prices for [`Policy::Best`].
    pub prices: &'a Prices,
}

impl Policy {
    /// Whether a value of `raw` bytes is kept compressed, and with which method.
    ///
    /// With [`MethodChoice::Either`], the policy decides on the smaller result, except that [`Policy::Best`] uses the
    /// cheaper one.
    pub fn decide(
        self,
        method: MethodChoice,
        raw: u32,
        sizes: CompressedSizes,
        circumstances: &Circumstances<'_>,
    ) -> MethodRule {
        let offers = method
            .methods()
            .iter()
            .filter_map(|&method| sizes.get(method).map(|size| Offer { method, size }));
        // If both are equal, the later one, lz4, is used, because it decompresses faster.
        let offer = if self == Policy::Best {
            offers.reduce(|a, b| {
                let is_cheaper = circumstances.price(raw, &b) <= circumstances.price(raw, &a);
                if is_cheaper { b } else { a }
            })
        } else {
            offers.reduce(|a, b| if b.size <= a.size { b } else { a })
        };
        match offer {
            Some(offer) if self.keeps(raw, &offer, circumstances) => {
                MethodRule::Compressed { method: offer.method, size: offer.size }
            }
            _ => MethodRule::Uncompressed,
        }
    }

    fn keeps(self, raw: u32, offer: &Offer, circumstances: &Circumstances<'_>) -> bool {
        let page = circumstances.page;
        let stored = offer.size.saturating_sub(VARLENA_HEADER_SIZE);
        let raw_chunks = page.chunks(raw);
        let chunks = if offer.size <= circumstances.inline_limit { 0 } else { page.chunks(stored) };
        let saved = raw_chunks.saturating_sub(chunks);
        match self {
            Policy::Always => true,
            Policy::Never => false,
            Policy::ChunkSaving { chunks } => saved >= chunks,
            Policy::Ratio(part) => part.holds(stored, raw),
            Policy::ChunkFloor { chunks } => raw_chunks < chunks || saved >= 1,
            Policy::Hybrid(part) => {
                part.holds(stored, raw) || saved > raw_chunks.checked_ilog2().unwrap_or(0)
            }
            Policy::Best => {
                circumstances.price(raw, offer) < circumstances.prices.uncompressed(page, raw)
            }
        }
    }
}

/// A compressed form of a value.
struct Offer {
    method: Method,
    size: u32,
}

impl Circumstances<'_> {
    fn price(&self, raw: u32, offer: &Offer) -> f64 {
        let inline = offer.size <= self.inline_limit;
        self.prices.compressed(self.page, raw, offer.size, offer.method, inline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compresses(policy: &str, raw: u32, datum: u32) -> bool {
        let circumstances = Circumstances {
            page: PageSize::DEFAULT,
            inline_limit: 2008,
            prices: &Prices::default(),
        };
        let sizes = CompressedSizes { lz4: Some(datum), pglz: None };
        let policy: Policy = policy.parse().unwrap();
        policy.decide(MethodChoice::One(Method::Lz4), raw, sizes, &circumstances)
            != MethodRule::Uncompressed
    }

    #[test]
    fn names_and_parameters_are_read_and_printed() {
        for text in [
            "always",
            "never",
            "chunk-saving",
            "chunk-saving=3",
            "ratio=0.95",
            "ratio=0.9375",
            "ratio=1.00",
            "chunk-floor=100",
            "hybrid=0.90",
            "best",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        for (short, long) in [
            ("chunk-saving=1", "chunk-saving"),
            ("ratio", "ratio=0.95"),
            ("Chunk_Floor", "chunk-floor=100"),
            (" hybrid = 0.8 ", "hybrid=0.80"),
        ] {
            assert_eq!(short.parse::<Policy>().unwrap().to_string(), long);
        }
    }

    #[test]
    fn errors_say_what_is_allowed() {
        for (text, message) in [
            (
                "sometimes",
                "unknown policy \"sometimes\": expected always, never, chunk-saving[=chunks], \
                 ratio[=part], chunk-floor[=chunks], hybrid[=part] or best",
            ),
            ("best=1", "policy \"best\" takes no parameter, got \"1\""),
            (
                "ratio=1.5",
                "policy \"ratio\" takes a part of the raw size over 0 and at most 1, got \"1.5\" \
                 (as in ratio=0.95)",
            ),
            (
                "chunk-floor=-1",
                "policy \"chunk-floor\" takes a number of chunks from 1 to 1000000, got \"-1\" \
                 (as in chunk-floor=100)",
            ),
        ] {
            assert_eq!(text.parse::<Policy>().unwrap_err().to_string(), message);
        }
        for text in ["ratio=0", "ratio=NaN", "ratio=-0.5", "hybrid=x", "chunk-saving=0", "ratio="] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
        assert_eq!(
            "zstd".parse::<MethodChoice>().unwrap_err().to_string(),
            "unknown compression method \"zstd\": expected pglz, lz4 or either"
        );
    }

    #[test]
    fn the_cases_of_the_thread() {
        // Each line has the raw size, the compressed size, and the policies that keep the value compressed.
        for (raw, stored, kept) in [
            (7_925, 7_845, "always chunk-floor"),
            (16_505, 16_050, "always chunk-floor"),
            (31_685, 30_263, "always chunk-floor ratio=0.96"),
            (3_885, 3_645, "always chunk-floor ratio=0.95 ratio=0.96"),
            (3_966, 2_012, "always chunk-floor ratio=0.95 ratio=0.96 hybrid best"),
        ] {
            for policy in
                "always never chunk-saving ratio=0.95 ratio=0.96 chunk-floor hybrid best".split(' ')
            {
                let wanted = kept.split(' ').any(|k| k == policy);
                assert_eq!(compresses(policy, raw, stored + 4), wanted, "{policy} {raw} {stored}");
            }
        }
    }

    #[test]
    fn chunks_saved_decide_where_the_policy_says_so() {
        // The value has 10 chunks, compressed 9 or 8.
        assert!(compresses("chunk-saving", 19_000, 17_000));
        assert!(!compresses("chunk-saving=2", 19_000, 17_000));
        assert!(compresses("chunk-saving=2", 19_000, 15_000));
        // The value fits in the row, so it has no chunks.
        assert!(compresses("chunk-saving", 1_990, 1_980));
        assert!(compresses("chunk-saving=2", 3_000, 2_008));
        assert!(!compresses("chunk-saving=2", 3_000, 2_009));
        // The value has 10 chunks, of which compression saves one or none.
        assert!(compresses("chunk-floor=10", 19_000, 17_000));
        assert!(!compresses("chunk-floor=10", 19_000, 18_500));
        assert!(compresses("chunk-floor=11", 19_000, 18_500));
        // With 527 chunks, 9 additional ones are allowed.
        assert!(!compresses("hybrid", 1_050_000, 1_032_500));
        assert!(compresses("hybrid", 1_050_000, 1_025_000));
    }

    #[test]
    fn either_takes_the_smaller_and_refused_results_are_no_offer() {
        let prices = Prices::default();
        let circumstances =
            Circumstances { page: PageSize::DEFAULT, inline_limit: 2008, prices: &prices };
        let decide = |pglz, lz4| {
            let sizes = CompressedSizes { pglz, lz4 };
            Policy::Always.decide(MethodChoice::Either, 5000, sizes, &circumstances)
        };
        let compressed = |method, size| MethodRule::Compressed { method, size };
        assert_eq!(decide(Some(3000), Some(3001)), compressed(Method::Pglz, 3000));
        assert_eq!(decide(Some(3000), Some(3000)), compressed(Method::Lz4, 3000));
        assert_eq!(decide(None, Some(4000)), compressed(Method::Lz4, 4000));
        assert_eq!(decide(None, None), MethodRule::Uncompressed);
    }
}
