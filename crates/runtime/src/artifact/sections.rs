//! The sections of an artifact: their places, their checksums, and the parts in them.

use super::{Extent, LoadError, SECTION_ALIGN, SECTION_NAMES, Section, inconsistent};
use std::ops::Range;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// What is left of each section for parts that follow.
pub(super) struct Sections<'a> {
    path: &'a Path,
    /// Where the first begins in the file, and where the file ends.
    data: Range<u64>,
    free: [Range<usize>; 3],
}

impl<'a> Sections<'a> {
    /// Checks their places and checksums, and that only zeros lie between them.
    pub(super) fn check(
        path: &'a Path,
        file: &[u8],
        manifest_end: usize,
        all: &[Section; 3],
    ) -> Result<Sections<'a>, LoadError> {
        let data = (manifest_end as u64).next_multiple_of(SECTION_ALIGN);
        let mut sections = Sections {
            path,
            data: data..file.len() as u64,
            free: [0..0, 0..0, 0..0],
        };
        for (at, section) in all.iter().enumerate() {
            let range = sections.range(section.extent)?;
            if xxh3_64(&file[range.clone()]) != section.checksum {
                return Err(LoadError::Checksum {
                    path: path.to_path_buf(),
                    part: SECTION_NAMES[at],
                });
            }
            sections.free[at] = range;
        }
        check_gaps(path, file, manifest_end, &sections.free)?;
        Ok(sections)
    }

    fn range(&self, extent: Extent) -> Result<Range<usize>, LoadError> {
        let start = self.data.start.checked_add(extent.offset);
        let end = start
            .and_then(|s| s.checked_add(extent.len))
            .filter(|e| *e <= self.data.end);
        match (start, end) {
            (Some(start), Some(end)) => Ok(start as usize..end as usize),
            _ => Err(inconsistent(self.path, "a section lies outside the file")),
        }
    }

    /// The next part of a section. What lies apart is no larger than the file, and what is
    /// in a section has a checksum.
    pub(super) fn take(
        &mut self,
        section: usize,
        extent: Extent,
    ) -> Result<Range<usize>, LoadError> {
        let range = self.range(extent)?;
        let free = &mut self.free[section];
        if range.start < free.start || range.end > free.end {
            let part = SECTION_NAMES[section];
            let reason = format!("parts of the {part} overlap or lie outside their section");
            return Err(inconsistent(self.path, &reason));
        }
        free.start = range.end;
        Ok(range)
    }
}

/// Checks that there is nothing but zeros between the manifest and the sections.
fn check_gaps(
    path: &Path,
    file: &[u8],
    manifest_end: usize,
    sections: &[Range<usize>],
) -> Result<(), LoadError> {
    let mut parts: Vec<_> = sections.iter().filter(|s| !s.is_empty()).collect();
    parts.sort_by_key(|s| s.start);
    let mut end = manifest_end;
    for (start, next) in parts
        .iter()
        .map(|s| (s.start, s.end))
        .chain([(file.len(), 0)])
    {
        if file
            .get(end..start)
            .is_some_and(|gap| gap.iter().any(|b| *b != 0))
        {
            return Err(LoadError::Checksum {
                path: path.to_path_buf(),
                part: "zeros between its parts",
            });
        }
        end = end.max(next);
    }
    Ok(())
}
