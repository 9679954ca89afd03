//! The settings that are compared for a column.

use crate::codec::Method;
use crate::disk::desc::Storage;
use crate::disk::layout::PageSize;
use crate::model::policy::{MethodChoice, Policy, Ratio};
use crate::model::settings::{Settings, SettingsError, TupleTarget};
use crate::server::about::Compression;

/// What the user wants compared; an empty list leaves the choice to [`candidates`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Narrowing {
    pub storages: Vec<Storage>,
    pub methods: Vec<MethodChoice>,
    pub targets: Vec<TupleTarget>,
    pub policies: Vec<Policy>,
}

impl Narrowing {
    fn is_empty(&self) -> bool {
        self.storages.is_empty()
            && self.methods.is_empty()
            && self.targets.is_empty()
            && self.policies.is_empty()
    }
}

/// What a server can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    pub compression: Compression,
    pub page: PageSize,
}

/// Why there is nothing to compare.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CandidateError {
    /// lz4 on a server without it.
    #[error("this server was built without lz4, so method \"{0}\" cannot be used: pglz is allowed")]
    NoLz4(MethodChoice),
    /// Every combination contradicts itself; the first one's reason.
    #[error(transparent)]
    Contradiction(#[from] SettingsError),
}

/// The settings to compare with `present`, without repetition and without `present` itself.
pub fn candidates(
    present: Settings,
    narrowing: &Narrowing,
    abilities: Abilities,
) -> Result<Vec<Settings>, CandidateError> {
    let needs_lz4 = |method: &MethodChoice| *method != MethodChoice::One(Method::Pglz);
    if let Some(&method) =
        narrowing.methods.iter().find(|&m| needs_lz4(m) && !abilities.compression.lz4)
    {
        return Err(CandidateError::NoLz4(method));
    }
    let mut all = if narrowing.is_empty() {
        standard(present, abilities)
    } else {
        asked(present, narrowing)?
    };
    let mut unique: Vec<Settings> = Vec::with_capacity(all.len());
    all.retain(|settings| {
        let known = unique.iter().chain([&present]).any(|other| same(other, settings));
        if !known {
            unique.push(*settings);
        }
        !known
    });
    Ok(all)
}

/// Whether two settings store every value alike.
pub fn same(a: &Settings, b: &Settings) -> bool {
    let compresses = |s: &Settings| matches!(s.storage, Storage::Extended | Storage::Main);
    a.storage == b.storage
        && (a.storage == Storage::Plain || a.target == b.target)
        && (!compresses(a) || (a.method == b.method && a.policy == b.policy))
}

/// Every combination of what was asked for, the present settings where nothing was.
fn asked(present: Settings, narrowing: &Narrowing) -> Result<Vec<Settings>, SettingsError> {
    let or = |list: &[Storage], otherwise| {
        if list.is_empty() { vec![otherwise] } else { list.to_vec() }
    };
    // Policies and methods need a storage that compresses.
    let compressing = !narrowing.policies.is_empty() || !narrowing.methods.is_empty();
    let present_storage = match present.storage {
        Storage::Plain | Storage::External if compressing => Storage::Extended,
        storage => storage,
    };
    let storages = or(&narrowing.storages, present_storage);
    let methods =
        if narrowing.methods.is_empty() { &[present.method][..] } else { &narrowing.methods };
    let targets =
        if narrowing.targets.is_empty() { &[present.target][..] } else { &narrowing.targets };
    let policies =
        if narrowing.policies.is_empty() { &[Policy::Always][..] } else { &narrowing.policies };
    let mut all = Vec::new();
    let mut contradiction = None;
    for &storage in &storages {
        for &method in methods {
            for &policy in policies {
                for &target in targets {
                    let settings = Settings { storage, method, target, policy };
                    match settings.check() {
                        Ok(()) => all.push(settings),
                        Err(error) => contradiction = contradiction.or(Some(error)),
                    }
                }
            }
        }
    }
    match contradiction {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// What is worth a look for most tables.
fn standard(present: Settings, abilities: Abilities) -> Vec<Settings> {
    let pglz = MethodChoice::One(Method::Pglz);
    let best = if abilities.compression.lz4 { MethodChoice::One(Method::Lz4) } else { pglz };
    let target = TupleTarget::default_for(abilities.page);
    let plain =
        Settings { storage: Storage::Extended, method: best, target, policy: Policy::Always };
    let mut all = vec![
        Settings { target: present.target, ..plain },
        plain,
        Settings { method: pglz, ..plain },
        Settings { storage: Storage::External, ..plain },
        Settings { storage: Storage::Main, ..plain },
    ];
    let page = abilities.page;
    let wide = (page.bytes() / 2 - 16) as u32;
    let widest = page.toast_tuple_target_main() as u32;
    for bytes in [256, wide, widest] {
        if let Ok(target) = TupleTarget::new(bytes, page) {
            all.push(Settings { target, ..plain });
        }
    }
    for policy in [
        Policy::ChunkSaving { chunks: 1 },
        Policy::Ratio(Ratio::NINETY_FIVE),
        Policy::ChunkFloor { chunks: 100 },
        Policy::Hybrid(Ratio::NINETY),
        Policy::Best,
    ] {
        all.push(Settings { policy, ..plain });
    }
    if abilities.compression.lz4 {
        all.push(Settings { method: MethodChoice::Either, policy: Policy::Best, ..plain });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abilities(lz4: bool) -> Abilities {
        let compression = Compression { lz4, default: Method::Pglz };
        Abilities { compression, page: PageSize::DEFAULT }
    }

    fn present() -> Settings {
        Settings {
            storage: Storage::Extended,
            method: MethodChoice::One(Method::Pglz),
            target: TupleTarget::default_for(PageSize::DEFAULT),
            policy: Policy::Always,
        }
    }

    fn names(narrowing: &Narrowing, lz4: bool) -> Vec<String> {
        let all = candidates(present(), narrowing, abilities(lz4)).unwrap();
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_standard_set() {
        assert_eq!(
            names(&Narrowing::default(), true),
            [
                "extended lz4",
                "external",
                "main lz4",
                "extended lz4 target 256",
                "extended lz4 target 4080",
                "extended lz4 target 8160",
                "extended lz4 chunk-saving",
                "extended lz4 ratio=0.95",
                "extended lz4 chunk-floor=100",
                "extended lz4 hybrid=0.90",
                "extended lz4 best",
                "extended either best",
            ]
        );
        assert!(names(&Narrowing::default(), false).iter().all(|name| !name.contains("lz4")));
    }

    #[test]
    fn what_is_asked_for_is_combined_and_checked() {
        let narrowing = Narrowing {
            policies: vec![Policy::ChunkSaving { chunks: 1 }, Policy::Always],
            targets: vec![TupleTarget::new(4080, PageSize::DEFAULT).unwrap()],
            ..Narrowing::default()
        };
        assert_eq!(
            names(&narrowing, true),
            ["extended pglz chunk-saving target 4080", "extended pglz target 4080"]
        );
        let lz4 = Narrowing { methods: vec![MethodChoice::Either], ..Narrowing::default() };
        let error = candidates(present(), &lz4, abilities(false)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this server was built without lz4, so method \"either\" cannot be used: pglz is allowed"
        );
        let wrong = Narrowing {
            storages: vec![Storage::External],
            policies: vec![Policy::Best],
            ..Narrowing::default()
        };
        let error = candidates(present(), &wrong, abilities(true)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy \"best\" needs storage extended or main, not external"
        );
    }
}
