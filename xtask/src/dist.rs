//! Release archives: `target/dist/tunesmith-VERSION-TARGET.tar.gz`, and a package for Debian where `dpkg-deb` is.
//!
//! The runner is linked statically, so that it runs in any Linux; the program needs LLVM's shared library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Fallible<T> = Result<T, String>;

/// What the program needs to be installed, by Debian's names.
const DEPENDS: &str = "libc6, libstdc++6, libllvm22";

pub fn run(root: &Path) -> Fallible<()> {
    let version = version(root)?;
    let target = host()?;
    let programs = ["-p", "tunesmith", "-p", "deploy"];
    let plugin = ["-p", "simulate", "--example", "qemu_counts"];
    for parts in [programs, plugin] {
        cargo(
            root,
            &[&["build", "--release", "--locked"], &parts[..]].concat(),
            &[("CARGO_TARGET_DIR", text(&root.join("target"))?)],
        )?;
    }
    let dist = root.join("target/dist");
    let name = format!("tunesmith-{version}-{target}");
    let tree = dist.join(&name);
    let runner = runner(root)?;
    lay_out(root, &tree, runner, &version)?;
    let archive = dist.join(format!("{name}.tar.gz"));
    call(
        Command::new("tar")
            .arg("-czf")
            .arg(&archive)
            .arg("-C")
            .arg(&dist)
            .arg(&name),
    )?;
    println!("{}", archive.display());
    if let Some(package) = debian(&dist, &tree, &version, &target)? {
        println!("{}", package.display());
    }
    Ok(())
}

/// Builds `tunesmith-run` without any library, so that it runs in every Linux for its processor; where it is.
pub fn runner(root: &Path) -> Fallible<PathBuf> {
    let target = host()?;
    let alone = root.join("target/dist/static");
    cargo(
        root,
        &[
            "build",
            "--release",
            "--locked",
            "-p",
            "deploy",
            "--bin",
            "tunesmith-run",
            "--target",
            &target,
        ],
        &[
            ("CARGO_TARGET_DIR", text(&alone)?),
            ("CARGO_PROFILE_RELEASE_LTO", "fat"),
            ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
            ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
            ("RUSTFLAGS", "-C target-feature=+crt-static"),
        ],
    )?;
    Ok(alone.join(&target).join("release/tunesmith-run"))
}

/// All that a release has, in a new folder.
fn lay_out(root: &Path, tree: &Path, runner: PathBuf, version: &str) -> Fallible<()> {
    let built = root.join("target/release");
    _ = fs::remove_dir_all(tree);
    let header = root.join("crates/deploy/include/tunesmith_runtime.h");
    for (from, to) in [
        (built.join("tunesmith"), "bin/tunesmith"),
        (built.join("tunesmith-runner"), "bin/tunesmith-runner"),
        (runner, "bin/tunesmith-run"),
        (
            built.join("libtunesmith_runtime.so"),
            "lib/libtunesmith_runtime.so",
        ),
        (
            built.join("libtunesmith_runtime.a"),
            "lib/libtunesmith_runtime.a",
        ),
        (
            built.join("examples/libqemu_counts.so"),
            "lib/libqemu_counts.so",
        ),
        (header, "include/tunesmith_runtime.h"),
        (root.join("LICENSE"), "share/doc/tunesmith/LICENSE"),
        (root.join("README.md"), "share/doc/tunesmith/README.md"),
        (
            root.join("docs/howto/deploy.md"),
            "share/doc/tunesmith/deploy.md",
        ),
        (
            root.join("crates/deploy/examples/classify.c"),
            "share/doc/tunesmith/classify.c",
        ),
        (
            root.join("crates/deploy/examples/two_threads.cpp"),
            "share/doc/tunesmith/two_threads.cpp",
        ),
    ] {
        copy(&from, &tree.join(to))?;
    }
    for file in [
        "bin/tunesmith",
        "bin/tunesmith-runner",
        "lib/libtunesmith_runtime.so",
    ] {
        call(Command::new("strip").arg(tree.join(file)))?;
    }
    write(
        &tree.join("lib/pkgconfig/tunesmith_runtime.pc"),
        &pkg_config(version),
    )?;
    write(
        &tree.join("lib/cmake/tunesmith_runtime/tunesmith_runtime-config.cmake"),
        CMAKE,
    )?;
    Ok(())
}

fn debian(dist: &Path, tree: &Path, version: &str, target: &str) -> Fallible<Option<PathBuf>> {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        println!("no .deb: dpkg-deb is not installed");
        return Ok(None);
    }
    let architecture = match target.split('-').next() {
        Some("x86_64") => "amd64",
        Some("aarch64") => "arm64",
        Some("riscv64gc") => "riscv64",
        _ => return Err(format!("Debian's name of {target} is not known")),
    };
    let staging = dist.join("deb");
    _ = fs::remove_dir_all(&staging);
    write(
        &staging.join("DEBIAN/control"),
        &format!(
            "Package: tunesmith\nVersion: {version}\nArchitecture: {architecture}\nDepends: {DEPENDS}\n\
             Maintainer: The Tunesmith team\nSection: devel\nPriority: optional\n\
             Description: auto-tuning compiler for deep-learning models\n \
             Finds fast implementations of every tensor program of a model, and runs the result.\n"
        ),
    )?;
    call(
        Command::new("cp")
            .arg("-a")
            .arg(tree)
            .arg(staging.join("usr")),
    )?;
    let package = dist.join(format!("tunesmith_{version}_{architecture}.deb"));
    let mut c = Command::new("dpkg-deb");
    call(
        c.args(["--root-owner-group", "--build"])
            .arg(&staging)
            .arg(&package),
    )?;
    fs::remove_dir_all(&staging).map_err(|e| e.to_string())?;
    Ok(Some(package))
}

fn pkg_config(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: tunesmith_runtime\nDescription: runs models that Tunesmith compiled\nVersion: {version}\n\
         Libs: -L${{libdir}} -ltunesmith_runtime\nLibs.private: -lpthread -ldl -lm -lgcc_s\nCflags: -I${{includedir}}\n"
    )
}

const CMAKE: &str =
    "get_filename_component(_prefix \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)
if(NOT TARGET tunesmith::runtime)
  add_library(tunesmith::runtime SHARED IMPORTED)
  set_target_properties(tunesmith::runtime PROPERTIES
    IMPORTED_LOCATION \"${_prefix}/lib/libtunesmith_runtime.so\"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES \"${_prefix}/include\")
endif()
";

fn cargo(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Fallible<()> {
    let mut c = Command::new(env!("CARGO"));
    call(
        c.args(arguments)
            .envs(variables.iter().copied())
            .current_dir(root),
    )
}

fn call(c: &mut Command) -> Fallible<()> {
    match c.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{c:?}: {status}")),
        Err(e) => Err(format!("{c:?}: {e}")),
    }
}

fn text(path: &Path) -> Fallible<&str> {
    path.to_str().ok_or("the path is no text".into())
}

fn write(to: &Path, text: &str) -> Fallible<()> {
    folder_of(to)?;
    fs::write(to, text).map_err(|e| format!("{}: {e}", to.display()))
}

fn copy(from: &Path, to: &Path) -> Fallible<()> {
    folder_of(to)?;
    let copied = fs::copy(from, to);
    copied
        .map(|_| ())
        .map_err(|e| format!("{}: {e}", from.display()))
}

fn folder_of(path: &Path) -> Fallible<()> {
    let folder = path.parent().ok_or("a path without a folder")?;
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// The version of the workspace.
fn version(root: &Path) -> Fallible<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).map_err(|e| e.to_string())?;
    let mut lines = manifest.lines().skip_while(|l| *l != "[workspace.package]");
    let line = lines.find_map(|l| l.strip_prefix("version = "));
    let version = line.ok_or("Cargo.toml has no version of the workspace")?;
    Ok(version.trim_matches('"').to_string())
}

/// The target that rustc builds for here.
fn host() -> Fallible<String> {
    let out = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|e| format!("rustc: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().find_map(|l| l.strip_prefix("host: "));
    line.map(str::to_string)
        .ok_or("rustc does not say its host".into())
}
