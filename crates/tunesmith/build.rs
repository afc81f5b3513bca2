//! The program finds the libraries that a package puts beside it: LLVM's, and what that needs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The older tag counts for the libraries of libraries, too.
    println!("cargo:rustc-link-arg-bins=-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib");
}
