//! Length-prefixed postcard messages, and pipe ends that keep a deadline.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Larger messages are a broken stream, not a request.
const MAX_FRAME_BYTES: u64 = 1 << 32;

pub fn write<T: Serialize>(w: &mut impl Write, message: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    w.write_all(&(body.len() as u64).to_le_bytes())?;
    w.write_all(&body)?;
    w.flush()
}

/// `None` at a clean end of the stream.
pub fn read<T: DeserializeOwned>(r: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0u8; 8];
    match r.read_exact(&mut len) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u64::from_le_bytes(len);
    if len > MAX_FRAME_BYTES {
        return Err(io::Error::other(format!("a frame of {len} bytes")));
    }
    // Grows as bytes arrive: a damaged length must not take the memory it names.
    let mut body = Vec::new();
    if r.take(len).read_to_end(&mut body)? as u64 != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&body)
        .map(Some)
        .map_err(io::Error::other)
}

/// Makes reads and writes on a pipe end return instead of waiting, as [`Until`] needs.
pub fn set_nonblocking(pipe: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&pipe)?;
    Ok(fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?)
}

/// How long a wait lasts before its deadline is asked for again.
const SLICE: Duration = Duration::from_millis(100);

/// A non-blocking pipe end that waits until a deadline, and then fails with
/// [`io::ErrorKind::TimedOut`]. The other side may stop in the middle of a message.
pub struct Until<'a, Pipe> {
    pub pipe: &'a Pipe,
    /// It may come nearer while somebody waits.
    pub deadline: &'a dyn Fn() -> Instant,
}

impl<Pipe: AsFd> Until<'_, Pipe> {
    fn wait(&self, wanted: PollFlags) -> io::Result<()> {
        loop {
            let left = (self.deadline)().saturating_duration_since(Instant::now());
            let slice = left.min(SLICE);
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(slice.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(self.pipe, wanted)], Some(&timeout)) {
                Ok(0) if slice == left => return Err(io::ErrorKind::TimedOut.into()),
                Ok(0) => {}
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl<Pipe: AsFd> Read for Until<'_, Pipe> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self.pipe, &mut *buffer) {
                Ok(n) => return Ok(n),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl<Pipe: AsFd> Write for Until<'_, Pipe> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.pipe, bytes) {
                Ok(n) => return Ok(n),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Message = (u32, Vec<(String, Option<u64>)>, Result<Vec<u8>, String>);

    fn message() -> Message {
        let entries = vec![("a".into(), Some(7)), (String::new(), None)];
        (3, entries, Ok(vec![1, 2, 3]))
    }

    fn written() -> Vec<u8> {
        let mut frame = Vec::new();
        write(&mut frame, &message()).unwrap();
        frame
    }

    #[test]
    fn a_frame_that_is_cut_is_an_error_and_none_is_an_end() {
        let frame = written();
        assert_eq!(read(&mut &frame[..]).unwrap(), Some(message()));
        assert!(read::<Message>(&mut &frame[..0]).unwrap().is_none());
        for end in 8..frame.len() {
            assert!(read::<Message>(&mut &frame[..end]).is_err(), "{end} bytes");
        }
    }

    /// Whatever a child writes, it is a message or an error, and takes no memory that did not
    /// come as bytes.
    #[test]
    fn changed_frames_are_errors_or_messages() {
        let frame = written();
        for at in 0..frame.len() {
            for value in 0..=255 {
                let mut changed = frame.clone();
                changed[at] = value;
                let mut rest = &changed[..];
                while let Ok(Some((_, entries, _))) = read::<Message>(&mut rest) {
                    assert!(entries.len() <= changed.len());
                }
            }
        }
        for length in [u64::MAX, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, 1 << 31] {
            let mut changed = frame.clone();
            changed[..8].copy_from_slice(&length.to_le_bytes());
            assert!(read::<Message>(&mut &changed[..]).is_err());
        }
    }
}
