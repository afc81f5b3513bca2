//! Who wrote an artifact: Ed25519 signatures (RFC 8032), and the files of their keys.
//!
//! Owns what stands behind the bytes of a signed artifact, and the form of key files. A
//! checksum finds damage; only a signature finds what was changed on purpose.
//!
//! A signed artifact is an unsigned one followed by 80 bytes: the signature of
//! [`CONTEXT`] and the SHA-512 digest of all bytes before it, the checksum of the
//! signature, and [`MARK`].

use ed25519_compact::sha512::Hash;
use ed25519_compact::{KeyPair, PublicKey, Seed, Signature};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes behind those of a signed artifact.
pub(crate) const TRAILER_BYTES: usize = SIGNATURE_BYTES + 16;
const SIGNATURE_BYTES: usize = 64;
const MARK: [u8; 8] = *b"TSMSIGN1";
/// Precedes what is signed, so that the signature of nothing else is one of an artifact.
const CONTEXT: &[u8] = b"tunesmith artifact, signature version 1\n";

/// Signs artifacts. Keep its file secret.
pub struct SigningKey(KeyPair);

/// Tells whether the owner of the signing key signed an artifact.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct VerifyKey([u8; 32]);

#[derive(Debug, Error)]
#[error("{path}: {reason}")]
pub struct KeyError {
    pub path: PathBuf,
    pub reason: String,
}

const SIGNING: &str = "tunesmith-signing-key";
const VERIFY: &str = "tunesmith-verify-key";
/// Key files are one line.
const LONGEST: u64 = 256;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes of a line `KIND HEX`.
fn key_bytes(text: &str, kind: &'static str) -> Result<[u8; 32], String> {
    let form = || format!("it is no key file: `{kind} ` and 64 hexadecimal digits are expected");
    let rest = text.trim().strip_prefix(kind).map(str::trim);
    let digits = rest.filter(|d| d.len() == 64 && d.bytes().all(|b| b.is_ascii_hexdigit()));
    let Some(digits) = digits else {
        let other = [SIGNING, VERIFY]
            .into_iter()
            .find(|k| *k != kind && text.trim().starts_with(k));
        return Err(other.map_or_else(form, |k| format!("it is a {k}, not a {kind}")));
    };
    let mut bytes = [0; 32];
    for (i, b) in bytes.iter_mut().enumerate() {
        *b = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| form())?;
    }
    Ok(bytes)
}

fn read_key(path: &Path, kind: &'static str) -> Result<[u8; 32], KeyError> {
    let fail = |reason: String| KeyError {
        path: path.to_path_buf(),
        reason,
    };
    let mut text = String::new();
    let file = File::open(path).and_then(|f| f.take(LONGEST).read_to_string(&mut text));
    file.map_err(|e| fail(format!("cannot read the key: {e}")))?;
    key_bytes(&text, kind).map_err(fail)
}

/// Writes a new file, which only its owner may read if it is `secret`.
fn write_key(path: &Path, line: &str, secret: bool) -> Result<(), KeyError> {
    let mode = if secret { 0o600 } else { 0o644 };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    let written = file.and_then(|mut f| {
        f.write_all(line.as_bytes())?;
        f.sync_all()
    });
    written.map_err(|e| KeyError {
        path: path.to_path_buf(),
        reason: match e.kind() {
            io::ErrorKind::AlreadyExists => "it is there already, and keys are not replaced".into(),
            _ => format!("cannot write the key: {e}"),
        },
    })
}

impl SigningKey {
    /// A new key of the system's random numbers.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn generate() -> io::Result<SigningKey> {
        let mut seed = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        SigningKey::from_seed(seed)
            .ok_or_else(|| io::Error::other("the random numbers are all equal"))
    }

    /// The key of a secret of 32 random bytes; `None` for one that nobody draws.
    pub fn from_seed(seed: [u8; 32]) -> Option<SigningKey> {
        KeyPair::try_from_seed(Seed::new(seed)).ok().map(SigningKey)
    }

    /// # Errors
    /// If the file holds no signing key.
    pub fn read(path: &Path) -> Result<SigningKey, KeyError> {
        let seed = read_key(path, SIGNING)?;
        SigningKey::from_seed(seed).ok_or_else(|| KeyError {
            path: path.to_path_buf(),
            reason: "it is no secret: make a key with `tunesmith keys`".into(),
        })
    }

    /// Writes a new file that only its owner may read.
    ///
    /// # Errors
    /// If there is one already, or it cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let line = format!("{SIGNING} {}\n", hex(&*self.0.sk.seed()));
        write_key(path, &line, true)
    }

    pub fn verify_key(&self) -> VerifyKey {
        VerifyKey(*self.0.pk)
    }

    /// What follows the bytes of an artifact.
    fn trailer(&self, body: &Hash) -> [u8; TRAILER_BYTES] {
        let signature = self.0.sk.sign(message(body), None);
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..SIGNATURE_BYTES].copy_from_slice(&*signature);
        let checksum = xxh3_64(&trailer[..SIGNATURE_BYTES]).to_le_bytes();
        trailer[SIGNATURE_BYTES..SIGNATURE_BYTES + 8].copy_from_slice(&checksum);
        trailer[SIGNATURE_BYTES + 8..].copy_from_slice(&MARK);
        trailer
    }
}

impl VerifyKey {
    /// # Errors
    /// If the file holds no verify key.
    pub fn read(path: &Path) -> Result<VerifyKey, KeyError> {
        read_key(path, VERIFY).map(VerifyKey)
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// If there is one already, or it cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        write_key(path, &format!("{VERIFY} {}\n", hex(&self.0)), false)
    }

    /// Whether the signing key of this one signed these bytes.
    pub(crate) fn verifies(&self, body: &[u8], trailer: &[u8]) -> bool {
        let mut hash = Hash::new();
        hash.update(body);
        let signature = trailer.get(..SIGNATURE_BYTES).map(Signature::from_slice);
        matches!(signature, Some(Ok(s)) if PublicKey::new(self.0).verify(message(&hash), &s).is_ok())
    }
}

fn message(body: &Hash) -> Vec<u8> {
    [CONTEXT, &body.finalize()].concat()
}

/// Bytes before the signature of a file of so many bytes that says to have `expected`.
pub(crate) fn body_bytes(expected: u64, found: u64) -> u64 {
    let signed = expected.checked_add(TRAILER_BYTES as u64) == Some(found);
    if signed { expected } else { found }
}

/// Whether these bytes are a signature without damage.
pub(crate) fn is_whole(trailer: &[u8]) -> bool {
    let Some((signature, [checksum @ .., _, _, _, _, _, _, _, _])) =
        trailer.split_at_checked(SIGNATURE_BYTES)
    else {
        return false;
    };
    trailer.ends_with(&MARK) && checksum == xxh3_64(signature).to_le_bytes()
}

/// Passes on what is written, and signs it at the end.
pub(crate) struct Signing<'a, W> {
    to: W,
    key: Option<&'a SigningKey>,
    hash: Hash,
}

impl<'a, W: Write> Signing<'a, W> {
    pub(crate) fn new(to: W, key: Option<&'a SigningKey>) -> Signing<'a, W> {
        let hash = Hash::new();
        Signing { to, key, hash }
    }

    /// Writes the signature, if there is a key.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.key {
            Some(key) => self.to.write_all(&key.trailer(&self.hash)),
            None => Ok(()),
        }
    }
}

impl<W: Write> Write for Signing<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        if self.key.is_some() {
            self.hash.update(&bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
