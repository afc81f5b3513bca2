//! LLVM's name of the processor that this program runs on.
//!
//! LLVM goes by the model number. Virtual machines may show another processor's number, and pass the
//! processor's own instructions on, so a name counts only if the processor of that name has them all.

use crate::object::initialize;
use crate::shim::features_of;
use inkwell::targets::TargetMachine;
use std::sync::OnceLock;

/// Cores of each maker that brought vector instructions, the oldest first.
const CORES: [&[&str]; 2] = [
    &[
        "sandybridge",
        "haswell",
        "skylake",
        "skylake-avx512",
        "cannonlake",
        "cascadelake",
        "icelake-client",
        "cooperlake",
        "tigerlake",
        "rocketlake",
        "icelake-server",
        "alderlake",
        "sapphirerapids",
        "emeraldrapids",
        "sierraforest",
        "graniterapids",
        "arrowlake",
        "arrowlake-s",
        "graniterapids-d",
        "clearwaterforest",
        "diamondrapids",
    ],
    &[
        "bdver1", "bdver2", "bdver4", "znver1", "znver2", "znver3", "znver4", "znver5",
    ],
];

/// LLVM's name of the processor that this program runs on, for
/// `CpuTarget::tune_cpu`; `None` where LLVM knows no more than the architecture.
pub fn host_cpu() -> Option<String> {
    static HOST: OnceLock<Option<String>> = OnceLock::new();
    let named = || {
        let name = TargetMachine::get_host_cpu_name().to_string();
        let unknown = ["", "generic", "generic-rv64", "x86-64"].contains(&name.as_str());
        let features = TargetMachine::get_host_cpu_features().to_string();
        (!unknown).then(|| with_features(name, &features))
    };
    HOST.get_or_init(named).clone()
}

/// The name, or the oldest one of the same maker whose processor has all vector and matrix instructions of
/// `features`, which are LLVM's with signs and commas. What a processor lacks says nothing: virtual
/// machines hide instructions.
fn with_features(name: String, features: &str) -> String {
    initialize();
    let on = features.split(',').filter_map(|f| f.strip_prefix('+'));
    let wanted: Vec<&str> = on
        .filter(|f| f.starts_with("avx") || f.starts_with("amx"))
        // A name for all of AVX-512: no instruction is new, and LLVM leaves it out of Granite Rapids, which has it.
        .filter(|f| !f.starts_with("avx10.1"))
        .collect();
    let has_all = |cpu: &str| {
        let has = features_of("x86_64-unknown-linux-gnu", cpu);
        has.is_some_and(|has| wanted.iter().all(|w| has.iter().any(|h| h == w)))
    };
    let own = CORES.iter().find(|maker| maker.contains(&name.as_str()));
    match own {
        Some(maker) if !has_all(&name) => {
            let oldest = maker.iter().find(|cpu| has_all(cpu));
            oldest.map_or(name, |cpu| cpu.to_string())
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a Sapphire Rapids has beside other things.
    const AMX: &str = "+sse4.2,+avx,+avx2,+avx512f,+avx512fp16,+avx512bf16,+avxvnni,-avx512vp2intersect,+amx-tile,+amx-int8,+amx-bf16";

    fn named(name: &str, features: &str) -> String {
        with_features(name.into(), features)
    }

    #[test]
    fn a_name_that_lacks_instructions_of_the_host_is_replaced_by_the_oldest_that_has_them() {
        assert_eq!(
            named("rocketlake", &format!("{AMX},+avx10.1")),
            "sapphirerapids"
        );
        for wrong in ["rocketlake", "skylake-avx512", "haswell", "alderlake"] {
            assert_eq!(named(wrong, AMX), "sapphirerapids", "{wrong}");
        }
        assert_eq!(
            named("rocketlake", &format!("{AMX},+amx-fp16")),
            "graniterapids"
        );
        assert_eq!(
            named("haswell", "+avx2,+avx512f,+avx512vnni"),
            "cascadelake"
        );
        assert_eq!(named("znver3", "+avx2,+avx512f,+avx512bf16"), "znver4");
    }

    #[test]
    fn a_name_whose_processor_has_more_than_the_host_stays() {
        let kept = [
            ("graniterapids", AMX),
            ("rocketlake", "+avx2,+avx512f,-avxvnni"),
            ("rocketlake", "+sse2,-avx"),
            ("znver5", "+avx2,+avx512f"),
            // No processor has these.
            ("znver5", AMX),
            // Another maker's, which the table does not have.
            ("neoverse-v2", "+sve,+bf16"),
        ];
        for (name, features) in kept {
            assert_eq!(named(name, features), name);
        }
    }

    #[test]
    fn llvm_knows_each_core() {
        initialize();
        for cpu in CORES.concat() {
            let features = features_of("x86_64-unknown-linux-gnu", cpu).unwrap_or_default();
            assert!(features.iter().any(|f| f == "avx"), "{cpu}: {features:?}");
        }
        assert_eq!(features_of("x86_64-unknown-linux-gnu", "no-such-cpu"), None);
    }
}
