//! The data that codecs are compared on, made from fixed seeds.

/// A small generator of its own, so that corpora never change with a library (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// An index below `bound`, small ones much more often, as words are in a language.
    pub(crate) fn skewed(&mut self, bound: usize) -> usize {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((bound as f64 + 1.0).powf(unit) - 1.0) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// English words, the frequent ones first.
const WORDS: &str = "the of and to in a is that for it as was with be by on not he his but at are \
this have from or had an they which one you were all her she there would their we him been has \
when who will no more if out so up said what its about than into them can only other time new \
some could these two may first then do any like my now over such our man me even most made after \
also did many off before must well back through years much where your way down should because \
long each just state those people too mr how little good world make very year still see own work \
men day get here old life both between being under three never know same last another while us \
might great go come since against right came take used himself few house american use place \
during high without again home around small however found mrs part school thought went say \
general once upon war left every don't does got united number hand course water until always \
away public something fact less though far put head think called set almost enough end took \
government night yet system better four nothing told eyes city going president why days present \
point didn't look find asked second group later next room social business knew program give half \
side face toward white five let young form given per order large several national important \
possible rather big among case often things looked early john become best need within felt \
children along saw light least power family interest want development members others mind \
country area done turned although open god service problem certain kind different thus began \
door help sense means whole matter storage column value table server relation chunk threshold \
compression measurement afternoon understanding particular experience information question \
history morning society local example company community together itself street million human \
action surface example letter moment political provide nature evidence strength language";

fn words() -> Vec<&'static str> {
    WORDS.split_whitespace().collect()
}

/// Running text.
pub(crate) fn english(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Seeded::new(seed);
    let words = words();
    let mut text = String::with_capacity(len + 256);
    while text.len() < len {
        let count = 5 + rng.below(18);
        for index in 0..count {
            let word = words[rng.skewed(words.len())];
            if index == 0 {
                text.push_str(&word[..1].to_uppercase());
                text.push_str(&word[1..]);
            } else {
                text.push_str(word);
                text.push_str(["", "", "", "", "s", "ed", "ing", "ly"][rng.below(8)]);
            }
            let last = index + 1 == count;
            text.push_str(match (last, rng.below(12)) {
                (true, 0) => ".\n\n",
                (true, 1) => "? ",
                (true, _) => ". ",
                (false, 0) => ", ",
                (false, _) => " ",
            });
        }
    }
    text.truncate(len);
    text.into_bytes()
}

/// Documents as an application stores them, one to a line.
pub(crate) fn json(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Seeded::new(seed);
    let words = words();
    let mut text = String::with_capacity(len + 2048);
    while text.len() < len {
        text.push_str(&format!(
            "{{\"id\": {}, \"created_at\": \"2023-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z\", \
             \"customer\": {{\"name\": \"{} {}\", \"email\": \"{}.{}@example.com\", \"active\": {}}}, \
             \"items\": [",
            rng.below(10_000_000),
            1 + rng.below(12),
            1 + rng.below(28),
            rng.below(24),
            rng.below(60),
            rng.below(60),
            rng.below(1_000_000),
            words[rng.below(words.len())],
            words[rng.below(words.len())],
            words[rng.below(words.len())],
            rng.below(1000),
            rng.below(2) == 0,
        ));
        for index in 0..1 + rng.below(6) {
            text.push_str(&format!(
                "{}{{\"sku\": \"{:08X}\", \"quantity\": {}, \"price\": {}.{:02}, \
                 \"title\": \"{} {} {}\"}}",
                if index == 0 { "" } else { ", " },
                rng.next() as u32,
                1 + rng.below(20),
                rng.below(500),
                rng.below(100),
                words[rng.below(words.len())],
                words[rng.below(words.len())],
                words[rng.below(words.len())],
            ));
        }
        text.push_str(&format!(
            "], \"status\": \"{}\", \"total\": {}.{:02}, \"tags\": [\"{}\", \"{}\"], \
             \"note\": null}}\n",
            ["new", "paid", "shipped", "returned"][rng.below(4)],
            rng.below(9000),
            rng.below(100),
            words[rng.below(words.len())],
            words[rng.below(words.len())],
        ));
    }
    text.truncate(len);
    text.into_bytes()
}

/// Hexadecimal digests with words between them, as in logs and manifests.
pub(crate) fn hex_and_words(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Seeded::new(seed);
    let words = words();
    let mut text = String::with_capacity(len + 256);
    while text.len() < len {
        text.push_str(&format!("{:016x}{:016x} ", rng.next(), rng.next()));
        for _ in 0..3 + rng.below(8) {
            text.push_str(words[rng.skewed(words.len())]);
            text.push([' ', ' ', ' ', '/', '_'][rng.below(5)]);
        }
        text.push('\n');
    }
    text.truncate(len);
    text.into_bytes()
}

/// Arrays of a few small integers, over and over, as `int[]` prints.
pub(crate) fn small_arrays(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Seeded::new(seed);
    let pool: Vec<String> = (0..24)
        .map(|_| {
            let items: Vec<String> =
                (0..2 + rng.below(7)).map(|_| rng.below(300).to_string()).collect();
            format!("{{{}}}", items.join(","))
        })
        .collect();
    let mut text = String::with_capacity(len + 64);
    while text.len() < len {
        text.push_str(&pool[rng.skewed(pool.len())]);
        text.push(',');
    }
    text.truncate(len);
    text.into_bytes()
}

/// Documents as `jsonb` stores them (`utils/jsonb.h`): a header, an entry for each key and value
/// with its type and length, or every 32nd with its offset, then the bytes, numerics aligned.
pub(crate) fn jsonb(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Seeded::new(seed);
    let words = words();
    let mut all = Vec::with_capacity(len + 4096);
    while all.len() < len {
        let keys: Vec<String> =
            (0..8 + rng.below(40)).map(|key| format!("k{:02}_{}", key, words[key])).collect();
        let values = keys.iter().map(|_| match rng.below(5) {
            0 => (0x1000_0000, {
                // A short numeric: varlena header, weight and scale, base 10000 digits.
                let mut numeric = 40u32.to_le_bytes().to_vec();
                numeric.extend([0x80 | rng.below(3) as u8, 0x80]);
                numeric.extend((rng.below(10_000) as u16).to_le_bytes());
                numeric.extend((rng.below(10_000) as u16).to_le_bytes());
                numeric
            }),
            1 => (0x3000_0000, Vec::new()),
            2 => (0x4000_0000, Vec::new()),
            _ => (0, {
                let mut text = words[rng.skewed(words.len())].to_owned();
                for _ in 0..rng.below(4) {
                    text.push(' ');
                    text.push_str(words[rng.skewed(words.len())]);
                }
                text.into_bytes()
            }),
        });
        let values: Vec<(u32, Vec<u8>)> = values.collect();
        let mut entries = Vec::new();
        let mut data = Vec::new();
        let parts = keys.iter().map(|key| (0, key.as_bytes().to_vec())).chain(values);
        for (index, (kind, part)) in parts.enumerate() {
            let before = data.len();
            if kind == 0x1000_0000 {
                data.resize(data.len().next_multiple_of(4), 0);
            }
            data.extend(part);
            let entry = if index % 32 == 31 {
                0x8000_0000 | kind | data.len() as u32
            } else {
                kind | (data.len() - before) as u32
            };
            entries.extend(entry.to_le_bytes());
        }
        all.extend((0x2000_0000 | keys.len() as u32).to_le_bytes());
        all.extend(entries);
        all.extend(data);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all.truncate(len);
    all
}
