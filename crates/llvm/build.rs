//! Compiles `shim/machine.cpp`, the C interface over LLVM's MC layer.

use std::process::Command;

const SOURCE: &str = "shim/machine.cpp";

fn config(program: &str, what: &str) -> String {
    let failed = |why: String| -> ! { panic!("`{program} {what}` says nothing: {why}") };
    match Command::new(program).arg(what).output() {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).trim().to_string(),
        Ok(out) => failed(out.status.to_string()),
        Err(error) => failed(error.to_string()),
    }
}

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    // Set by llvm-sys, which also says that the crate is to be linked with LLVM.
    let program = std::env::var("DEP_LLVM_22_CONFIG_PATH")
        .expect("llvm-sys found no LLVM 22: install llvm-22-dev, or set LLVM_SYS_221_PREFIX");
    let mut build = cc::Build::new();
    // The layout of LLVM's classes depends on whether it was built with assertions.
    if config(&program, "--assertion-mode") == "OFF" {
        build.define("NDEBUG", None);
    }
    for name in [
        "_GNU_SOURCE",
        "__STDC_CONSTANT_MACROS",
        "__STDC_FORMAT_MACROS",
        "__STDC_LIMIT_MACROS",
    ] {
        build.define(name, None);
    }
    build
        .cpp(true)
        .std("c++17")
        .file(SOURCE)
        .flag("-isystem")
        .flag(config(&program, "--includedir"))
        .flag_if_supported("-fno-rtti")
        .flag_if_supported("-fno-exceptions")
        .flag_if_supported("-Wno-unused-parameter")
        .opt_level(1)
        .debug(false)
        .compile("tunesmith_machine");
}
