//! A table that only grows, whose look-ups take no lock.
//!
//! Each bucket is a list whose links are written once. So a reader follows them by loads alone, and
//! a writer that comes second to a link goes on behind it.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

const BUCKETS: usize = 256;

pub(crate) struct Table<K, V> {
    buckets: Vec<Link<K, V>>,
}

type Link<K, V> = OnceLock<Box<Node<K, V>>>;

struct Node<K, V> {
    hash: u64,
    key: K,
    value: Arc<V>,
    next: Link<K, V>,
}

impl<K: Hash + Eq + Clone, V> Table<K, V> {
    pub fn new() -> Table<K, V> {
        Table {
            buckets: (0..BUCKETS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The value of a key, made if there is none.
    pub fn get_or_insert(&self, key: &K, make: impl FnOnce() -> V) -> &Arc<V> {
        let hash = hash(key);
        let mut make = Some(make);
        let mut link = &self.buckets[(hash >> 56) as usize % BUCKETS];
        loop {
            let node = link.get_or_init(|| {
                let value = make.take().map(|make| make());
                Box::new(Node {
                    hash,
                    key: key.clone(),
                    value: Arc::new(value.expect("a key is inserted once")),
                    next: OnceLock::new(),
                })
            });
            if node.hash == hash && node.key == *key {
                return &node.value;
            }
            link = &node.next;
        }
    }

    /// The value of a key, if there is one.
    pub fn get(&self, key: &K) -> Option<&Arc<V>> {
        let hash = hash(key);
        let mut link = &self.buckets[(hash >> 56) as usize % BUCKETS];
        loop {
            let node = link.get()?;
            if node.hash == hash && node.key == *key {
                return Some(&node.value);
            }
            link = &node.next;
        }
    }

    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<V>)> {
        let first = self.buckets.iter().filter_map(|b| b.get());
        first.flat_map(|node| {
            let all = std::iter::successors(Some(node), |n| n.next.get());
            all.map(|n| (&n.key, &n.value))
        })
    }
}

/// Multiplies and rotates words: keys are short, and nobody attacks them.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // An odd number near 2^64 over the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

fn hash(key: &impl Hash) -> u64 {
    let mut mix = Mix::default();
    key.hash(&mut mix);
    mix.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_made_once_by_many_threads() {
        let table: Table<u32, u32> = Table::new();
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| {
                    for key in 0..2000 {
                        assert_eq!(**table.get_or_insert(&key, || key * 3), key * 3);
                    }
                });
            }
        });
        assert_eq!(table.iter().count(), 2000);
        let mut values: Vec<u32> = table.iter().map(|(_, v)| **v).collect();
        values.sort_unstable();
        assert!(values.iter().zip(0..).all(|(v, key)| *v == key * 3));
    }
}
