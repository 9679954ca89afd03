//! What can be wrong with a varlena, a `jsonb` container or the content of another value, and where.

/// Why bytes are not a varlena. Offsets count from the datum's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VarlenaError {
    /// The bytes end inside the header.
    #[error("varlena header needs {need} bytes, {got} are left")]
    HeaderCut {
        /// Bytes of this kind of header.
        need: usize,
        /// The number of bytes given.
        got: usize,
    },
    /// The length in the header is less than the header itself.
    #[error("varlena length {length} is less than its header of {header} bytes")]
    TooShort {
        /// The length read, header included.
        length: usize,
        /// Bytes of the header.
        header: usize,
    },
    /// The value reaches past the end of the bytes.
    #[error("varlena of {length} bytes reaches past the end: {got} bytes are left")]
    PastEnd {
        /// The length read, header included.
        length: usize,
        /// The number of bytes given.
        got: usize,
    },
}

/// What is wrong with a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonbErrorKind {
    /// A container header is cut off.
    #[error("jsonb container header needs 4 bytes, {0} are left")]
    HeaderCut(usize),
    /// Type bits that no server writes.
    #[error("invalid jsonb container header 0x{0:08x}")]
    ContainerType(u32),
    /// More entries than bytes.
    #[error("jsonb container of {count} needs {need} bytes of entries, {got} are left")]
    TooManyEntries {
        /// The count in the header.
        count: u32,
        /// Bytes that entries and value map need.
        need: u64,
        /// The number of bytes left.
        got: usize,
    },
    /// A scalar's container with more or less than one element.
    #[error("jsonb scalar with {0} elements")]
    ScalarCount(u32),
    /// An entry's type bits that no server writes.
    #[error("invalid jsonb entry 0x{0:08x}")]
    EntryType(u32),
    /// An entry's end is before its start or behind the data.
    #[error("jsonb entry from byte {start} to {end} of {length} bytes of data")]
    EntryBounds {
        /// Where the entry before ends.
        start: u64,
        /// Offset of its end in the data.
        end: u64,
        /// The number of data bytes.
        length: usize,
    },
    /// An object's key is no string.
    #[error("jsonb key is not a string: entry 0x{0:08x}")]
    Key(u32),
    /// A value map leads to no value, or twice to the same.
    #[error("jsonb value map leads to value {position} of {count}, or a second time")]
    ValueMap {
        /// The position that was read.
        position: u32,
        /// The number of values.
        count: u32,
    },
    /// A numeric's or pointer's varlena is damaged.
    #[error(transparent)]
    Varlena(VarlenaError),
    /// A numeric's varlena is compressed, or does not fill its entry.
    #[error("jsonb numeric of {0} bytes is not an uncompressed varlena of that length")]
    NumericVarlena(usize),
    /// A numeric is damaged.
    #[error(transparent)]
    Numeric(ContentError),
    /// Deeper than any server can have written.
    #[error("jsonb is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The text is longer than a server could make it.
    #[error("text of jsonb is longer than {MAX_TEXT} bytes")]
    TextTooLong,
    /// A pointer to a container where there can be none.
    #[error("pointer to a jsonb container outside a value of jsonb_toaster")]
    Pointer,
    /// What a pointer led to is not what its entry says.
    #[error("pointer says {expected}, found {found}")]
    FetchedContainer {
        /// By the pointer's entry.
        expected: ContainerClass,
        /// The container that was fetched.
        found: ContainerClass,
    },
    /// An array was expected, as in each chunk of a chunked array.
    #[error("jsonb container is not an array")]
    NoArray,
}

/// Whether a container is an object or an array, and of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerClass {
    /// Whether it is an object; otherwise an array.
    pub object: bool,
    /// The number of pairs or elements.
    pub count: u32,
}

impl std::fmt::Display for ContainerClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let class = if self.object { "object" } else { "array" };
        write!(f, "jsonb {class} of {}", self.count)
    }
}

/// A damaged container, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (jsonb byte {byte})")]
pub struct JsonbError {
    /// Offset from the start of the outermost container.
    pub byte: usize,
    /// What is wrong there.
    pub kind: JsonbErrorKind,
}

/// Levels that are read. The server's parser recurses and ends at `max_stack_depth`, some ten
/// thousand levels by default.
pub const MAX_DEPTH: usize = 1 << 20;

/// The longest text that a server can make of a value (`MaxAllocSize`).
pub const MAX_TEXT: usize = 0x3FFF_FFFF;

/// A `jsonb` container's data has fewer bytes than this (`JENTRY_OFFLENMASK`).
pub(super) const MOST_DATA: usize = 0x0FFF_FFFF;

/// Why the content of a numeric, a document, an array or a composite value, or its text, cannot be read, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// A numeric that ends inside its header.
    #[error("numeric of {0} bytes is shorter than its header")]
    NumericCut(usize),
    /// Half a digit at a numeric's end.
    #[error("numeric has an odd number of digit bytes")]
    NumericOddLength,
    /// A special value that no version writes, or one with digits.
    #[error("invalid numeric header 0x{0:04x}")]
    NumericHeader(u16),
    /// A digit over 9999.
    #[error("invalid numeric digit {digit} at position {index}")]
    NumericDigit {
        /// The digit, which must be below 10,000.
        digit: u16,
        /// Its index from 0.
        index: usize,
    },
    /// An `hstore` that ends too early.
    #[error("hstore has {got} bytes, header and entries alone need {need} (hstore byte 0)")]
    HstoreCut {
        /// Bytes of header and entries.
        need: u64,
        /// Bytes that are there.
        got: usize,
    },
    /// An `hstore` of before PostgreSQL 9.0, or none.
    #[error("hstore header {0:#010x} is none of PostgreSQL 9.0 or later (hstore byte 0)")]
    HstoreVersion(u32),
    /// A key or a value of an `hstore` that ends before it begins, or behind the strings.
    #[error(
        "hstore entry {entry:#010x} ends at {end} of {strings} bytes of strings, where {before} came before it (hstore byte {byte})"
    )]
    HstoreEntry {
        /// The entry's number, from 0.
        entry: u32,
        /// Offset of its end in the data.
        end: u32,
        /// Bytes of all strings.
        strings: usize,
        /// Where the string before it ends.
        before: usize,
        /// Offset of the entry in the content.
        byte: usize,
    },
    /// A text that no server prints of an `hstore`.
    #[error("text is not as hstore prints it (byte {0})")]
    HstoreText(usize),
    /// A text that is no JSON.
    #[error("text is not as json must be (json byte {0})")]
    Json(usize),
    /// A text that no server prints of a `jsonb`.
    #[error("text of jsonb is not as the server prints it (byte {0})")]
    JsonbText(usize),
    /// Deeper than any server can have written.
    #[error("jsonb is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More than a container can hold.
    #[error("jsonb container of more than {MOST_DATA} bytes")]
    TooLong,
    /// An array or composite value that cannot be read.
    #[error("{what} (byte {byte})")]
    Element {
        /// The damage, in words.
        what: &'static str,
        /// Offset from the start of the content.
        byte: usize,
    },
    /// A text that no server prints of an array or a composite value.
    #[error("text is not as arrays and composite values are printed (byte {0})")]
    ElementText(usize),
    /// A type of elements whose size does not follow from its text.
    #[error("the size of values of type {0} inside other values is not known without pages")]
    ElementType(u32),
}
