//! Why bytes are no variable-length value.

/// Why bytes are no varlena. Offsets count from the datum's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VarlenaError {
    /// The bytes end inside the header.
    #[error("varlena header needs {need} bytes, {got} are left")]
    HeaderCut {
        /// Bytes of this kind of header.
        need: usize,
        /// Bytes there are.
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
        /// Bytes there are.
        got: usize,
    },
}
