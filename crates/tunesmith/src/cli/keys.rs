//! `keys`: keys that sign compiled models, and the flags that take them.

use crate::file_kind::instead_of_artifact;
use runtime::{ConstantMemory, SigningKey, Variants, VerifyKey};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tune::{Error, Result};

/// Make a key that signs compiled models, and the one that verifies them
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tunesmith keys release.key\n  tunesmith compile model.onnx --sign-key release.key --out model.tsm\n  tunesmith run model.tsm --verify-key release.key.pub --random 1\n\nA compiled model is a program: whoever runs it runs its code. A signature says that the owner of\nthe signing key wrote the file. Keep the signing key secret; give the other one, FILE.pub, to\nwhoever runs the models."
)]
pub struct Args {
    /// The file for the signing key; the verify key goes to FILE.pub
    file: PathBuf,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let mut public = a.file.clone().into_os_string();
    public.push(".pub");
    let public = PathBuf::from(public);
    let failed = |e: runtime::KeyError| Error::new(e.to_string()).help("name another file");
    if public.symlink_metadata().is_ok() {
        let shown = public.display();
        return Err(Error::new(format!(
            "{shown} is there already, and keys are not replaced"
        ))
        .help("name another file"));
    }
    let key = SigningKey::generate()
        .map_err(|e| Error::new(format!("the system gives no random numbers: {e}")))?;
    key.write_new(&a.file).map_err(failed)?;
    key.verify_key().write_new(&public).map_err(failed)?;
    super::print_line(&format!(
        "signing key (keep it secret): {}\nverify key: {}",
        a.file.display(),
        public.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// How a compiled model is written.
#[derive(clap::Args)]
pub struct SignArgs {
    /// Sign the compiled model with this key (see `keys`)
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
}

impl SignArgs {
    /// The key, read before any work is done.
    pub fn key(&self) -> Result<Option<SigningKey>> {
        let key = self.sign_key.as_deref().map(SigningKey::read).transpose();
        key.map_err(|e| Error::new(e.to_string()).help("make a key with `tunesmith keys FILE`"))
    }

    pub fn files(&self) -> Vec<PathBuf> {
        self.sign_key.iter().cloned().collect()
    }
}

/// Which compiled models are loaded.
#[derive(clap::Args)]
pub struct VerifyArgs {
    /// Load a compiled model only if it was signed with the key that belongs to this one (see `keys`).
    /// A compiled model is a program: without a key, load only what you trust
    #[arg(long, value_name = "FILE")]
    verify_key: Option<PathBuf>,
}

impl VerifyArgs {
    pub fn load(&self, artifact: &Path, constants: ConstantMemory) -> Result<Variants> {
        let key = self.verify_key.as_deref().map(VerifyKey::read).transpose();
        let key = key.map_err(|e| {
            Error::new(e.to_string()).help("give the file .pub that `tunesmith keys` wrote")
        })?;
        let loaded = Variants::load_verified(artifact, constants, key.as_ref());
        loaded.map_err(|e| match instead_of_artifact(artifact) {
            Some((what, advice)) => Error::new(what).help(advice),
            None => e.into(),
        })
    }
}
