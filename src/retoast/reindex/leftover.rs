//! Indexes that REINDEX CONCURRENTLY leaves behind when it is interrupted, by their names (pure).

/// `NAMEDATALEN` - 1.
const LONGEST: usize = 63;
/// Most bytes of a character in the encodings of servers.
const CHARACTER: usize = 4;

/// Whether REINDEX CONCURRENTLY of the index `base` may have made an index of this name: `base`, cut where it is
/// too long, and `_ccnew` or `_ccold`, with a number where that name was taken (`ChooseRelationName`, indexcmds.c).
pub(crate) fn is_of(name: &str, base: &str) -> bool {
    ["_ccnew", "_ccold"].iter().any(|label| {
        let Some(at) = name.rfind(label) else { return false };
        let (Some(stem), Some(number)) = (name.get(..at), name.get(at + label.len()..)) else {
            return false;
        };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) || number.starts_with('0') {
            return false;
        }
        let room = LONGEST.saturating_sub(label.len() + number.len());
        stem == base
            || base.len() > room
                && !stem.is_empty()
                && base.starts_with(stem)
                && stem.len() + CHARACTER > room
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_server_chooses() {
        for name in ["t_pkey_ccnew", "t_pkey_ccold", "t_pkey_ccnew1", "t_pkey_ccold12"] {
            assert!(is_of(name, "t_pkey"), "{name}");
        }
        for name in ["t_pkey", "t_pke_ccnew", "t_pkey2_ccnew", "t_pkey_ccnewx", "t_pkey_ccnew01"] {
            assert!(!is_of(name, "t_pkey"), "{name}");
        }
        assert!(is_of("a_ccnew_ccnew", "a_ccnew") && !is_of("a_ccnew", "a_ccnew"));
    }

    #[test]
    fn long_names_are_cut() {
        let base = "x".repeat(63);
        assert!(is_of(&format!("{}_ccnew", "x".repeat(57)), &base));
        assert!(is_of(&format!("{}_ccnew1", "x".repeat(56)), &base));
        assert!(!is_of(&format!("{}_ccnew", "x".repeat(40)), &base));
        let base = "ä".repeat(31);
        assert!(is_of(&format!("{}_ccold", "ä".repeat(28)), &base));
    }
}
