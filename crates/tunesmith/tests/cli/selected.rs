//! What is made of the choice among the alternatives of a model's steps.

use super::program::place;
use std::fs;
use tempfile::tempdir;

/// Small, and computed by every algorithm of convolutions.
const CONVOLUTION: &str = "op:conv2d(c=16,h=12,w=12,k=16,r=3,s=3,pad=1)";

#[test]
fn a_decided_model_is_written_without_the_alternatives_that_lost() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&[
        "compile",
        CONVOLUTION,
        "--threads",
        "1",
        "--alternatives",
        "im2row,convgemm,winograd2,winograd4",
        "--out",
        "m.tsm",
    ]);
    let one = |command: &[&str]| p.json(&[command, &["--threads", "1"]].concat());
    let bench = ["bench", "m.tsm", "--time", "0.1s", "--decisions", "d"];
    let error = p.error(&[&bench[..4], &["--out", "decided.tsm"]].concat());
    assert!(error.contains("--select online"), "{error}");
    let more = ["--select", "online", "--out", "decided.tsm"];
    let written = one(&[&bench[..], &more].concat());
    let bytes = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    assert_eq!(written["bytes"].as_u64(), Some(bytes("decided.tsm")));
    assert!(bytes("decided.tsm") < bytes("m.tsm"), "{written}");
    // It computes what the decided model computes, by the same kernels.
    let run = ["run", "--random", "1"];
    one(&[
        &run[..],
        &[
            "m.tsm",
            "--select",
            "online",
            "--decisions",
            "d",
            "--out",
            "all.npy",
        ],
    ]
    .concat());
    one(&[&run[..], &["decided.tsm", "--out", "left.npy"]].concat());
    let values = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(values("all.npy") == values("left.npy"));
    assert_eq!(
        one(&["check", CONVOLUTION, "--artifact", "decided.tsm"])["ok"],
        true
    );
    // Nothing is left to be chosen.
    let error = p.error(&[
        "bench",
        "decided.tsm",
        "--threads",
        "1",
        "--select",
        "online",
    ]);
    assert!(error.contains("no step with alternatives"), "{error}");
}
