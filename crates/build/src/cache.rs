//! Objects on disk, keyed by everything that decides them.
//!
//! Entries are written beside their place and renamed, so a reader sees a
//! whole entry or none; one that does not match its checksum counts as absent.

use crate::pipeline::Built;
use crate::toolchain::toolchain;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tensor::NewFile;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// A folder of built candidates.
#[derive(Clone, Debug)]
pub struct ObjectCache {
    folder: PathBuf,
}

impl ObjectCache {
    /// Creates the folder if it is missing.
    pub fn open(folder: &Path) -> std::io::Result<ObjectCache> {
        std::fs::create_dir_all(folder)?;
        Ok(ObjectCache {
            folder: folder.to_path_buf(),
        })
    }

    /// The key of a candidate: program, trace and target text, and what turns
    /// them into code ([`toolchain`]).
    pub fn key(program: &str, trace: &str, target: &str) -> String {
        let parts = [program, trace, target, toolchain()];
        let text: String = parts.iter().map(|p| format!("{}:{p}", p.len())).collect();
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.built"))
    }

    pub fn get(&self, key: &str) -> Option<Built> {
        let bytes = std::fs::read(self.path(key)).ok()?;
        let (sum, body) = bytes.split_first_chunk::<8>()?;
        let whole = u64::from_le_bytes(*sum) == xxh3_64(body);
        whole.then(|| postcard::from_bytes(body).ok()).flatten()
    }

    pub fn put(&self, key: &str, built: &Built) -> std::io::Result<()> {
        let body = postcard::to_stdvec(built).map_err(std::io::Error::other)?;
        let mut entry = NewFile::beside(&self.path(key))?;
        entry.writer().write_all(&xxh3_64(&body).to_le_bytes())?;
        entry.writer().write_all(&body)?;
        // One that is lost is built again.
        entry.put_unsynced().map(drop)
    }

    /// Removes the oldest entries until at most `max_bytes` are left.
    pub fn trim(&self, max_bytes: u64) -> std::io::Result<()> {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let facts = entry.metadata()?;
            entries.push((facts.modified()?, facts.len(), entry.path()));
        }
        let mut total: u64 = entries.iter().map(|e| e.1).sum();
        entries.sort();
        for (_, bytes, path) in entries {
            if total <= max_bytes {
                break;
            }
            // Another process may have removed it first.
            let _ = std::fs::remove_file(path);
            total -= bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_separate_their_parts() {
        assert_ne!(
            ObjectCache::key("a", "bc", "t"),
            ObjectCache::key("ab", "c", "t")
        );
        assert_eq!(
            ObjectCache::key("a", "b", "t"),
            ObjectCache::key("a", "b", "t")
        );
    }

    #[test]
    fn trimming_keeps_the_newest_and_bad_entries_are_absent() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ObjectCache::open(folder.path()).unwrap();
        for (i, name) in ["x", "y", "z"].iter().enumerate() {
            std::fs::write(cache.path(name), vec![0u8; 100]).unwrap();
            let when = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(i as u64);
            std::fs::File::open(cache.path(name))
                .unwrap()
                .set_modified(when)
                .unwrap();
        }
        assert!(cache.get("x").is_none());
        cache.trim(250).unwrap();
        assert!(!cache.path("x").exists() && cache.path("y").exists() && cache.path("z").exists());
    }
}
