//! Users without a home folder, or with little memory.

use super::errors::says;
use super::program::{OP, Sandbox, place};
use tempfile::tempdir;

#[test]
fn what_needs_no_store_needs_no_home() {
    let folder = tempdir().unwrap();
    // A variable that is empty counts as not set.
    let homeless = ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"].map(|name| (name, String::new()));
    let p = Sandbox {
        variables: homeless.to_vec(),
        ..place(&folder)
    };
    p.ok(&["compile", OP, "--defaults", "--out", "o.tsm"]);
    p.ok(&["compile", OP, "--out", "o.tsm"]);
    p.ok(&["tasks", OP]);
    p.ok(&["dump", OP, "--stage", "flat"]);
    p.ok(&["explain", "o.tsm", "--time", "0s"]);
    says(
        &p.error(&["tune", OP, "--trials", "1"]),
        &["no home folder", "--store FILE"],
    );
    assert!(!folder.path().join("tunesmith").exists());
}

/// As after `ulimit -v`.
fn limited<const MIB: u64>() -> std::io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: MIB << 20,
        rlim_max: MIB << 20,
    };
    // SAFETY: the limit is valid.
    match unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn little_memory_is_an_error_with_advice_or_enough() {
    let folder = tempdir().unwrap();
    let limits: [fn() -> std::io::Result<()>; 3] =
        [limited::<500>, limited::<700>, limited::<1000>];
    for before in limits {
        let p = Sandbox {
            before: Some(before),
            variables: vec![("RUST_BACKTRACE", "1".into())],
            ..place(&folder)
        };
        for args in [
            &["doctor"][..],
            &["compile", OP, "--defaults", "--out", "o.tsm"],
        ] {
            let out = p.output(args);
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(!said.contains("panicked"), "{args:?}: {said}");
            assert!(
                out.status.success() || said.contains("memory"),
                "{args:?}: {}: {said}",
                out.status
            );
        }
    }
}
