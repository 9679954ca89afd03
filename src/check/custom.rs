//! Which kind of damage it is that keeps the value of a pluggable toaster from being read (pure).

use super::code::Code;
use super::value::Damage;
use crate::disk::custom::CustomPointer;
use crate::model::toaster::error::ToastError;

/// Where `bytea_toaster` has the version, from the payload's start.
const VERSION_AT: usize = 16;

/// What `error` means for the value of `pointer`; `None` where it is no damage: a toaster that is
/// not known here.
pub fn damage(pointer: &CustomPointer<'_>, error: &ToastError) -> Option<Damage> {
    let code = code(pointer, error)?;
    Some(Damage::new(code, "a value that its toaster can read", error.to_string()))
}

fn code(pointer: &CustomPointer<'_>, error: &ToastError) -> Option<Code> {
    Some(match error {
        ToastError::Inside { error, .. } => code(pointer, error)?,
        ToastError::UnknownToaster { .. } => return None,
        ToastError::Store(_) => Code::ChunkUnreadable,
        ToastError::NoChunks { .. } => Code::NoChunks,
        ToastError::MissingChunk { .. } => Code::ChunkMissing,
        ToastError::UnexpectedChunk { .. } => Code::ChunkNumber,
        ToastError::DuplicateChunk { .. } => Code::ChunkTwice,
        ToastError::ChunkSize { .. }
        | ToastError::ChunkStart { .. }
        | ToastError::StoredSize { .. } => Code::ChunkSize,
        ToastError::CompressedChunk { .. } => Code::ChunkForm,
        ToastError::NoChunkAt { .. } | ToastError::OtherChunkAt { .. } => Code::CustomTid,
        ToastError::ChunkVersion { .. } => Code::CustomVersion,
        ToastError::Decompress { .. } => Code::ExternalCompressed,
        ToastError::UnknownTag { .. } => Code::Tag,
        ToastError::Jsonb(_) | ToastError::Content(_) => Code::Jsonb,
        ToastError::TidList { .. } => Code::CustomTidList,
        ToastError::Patch { .. } => Code::CustomPatch,
        ToastError::Custom { toaster: "bytea_toaster", byte, .. }
            if *byte == pointer.layout.head_size() + VERSION_AT =>
        {
            Code::CustomVersion
        }
        ToastError::Custom { .. }
        | ToastError::Pointer { .. }
        | ToastError::PayloadMissing { .. }
        | ToastError::NoContent(_)
        | ToastError::TooLong => Code::CustomPointer,
    })
}
