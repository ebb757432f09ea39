//! Watches directories for changes of their entries (inotify).

use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
    path::Path,
};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// Size of a buffer for queued events. Fits a few hundred events, and at least one with the longest name.
pub const EVENT_BUFFER_BYTES: usize = 16 << 10;

/// Size of an event without its name.
const EVENT_HEAD_BYTES: usize = 16;

/// Number of a watched directory. A directory that is added again keeps its number while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchedDirectoryId(i32);

/// Event in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryEvent {
    /// An entry was created, removed or renamed, was written and closed, or has new metadata.
    EntryChanged { directory: WatchedDirectoryId, name: OsString },
    /// The directory itself was moved or removed.
    DirectoryChanged { directory: WatchedDirectoryId },
    /// The directory or its file system is gone, so the watch has ended.
    WatchEnded { directory: WatchedDirectoryId },
    /// The kernel's queue was full, and events were lost.
    Overflow,
}

/// Watches the entries of directories, but not of their subdirectories. The descriptor is readable if there
/// are events.
#[derive(Debug)]
pub struct DirectoryWatch {
    fd: OwnedFd,
}

impl DirectoryWatch {
    /// Returns a watch without directories.
    ///
    /// # Errors
    /// The user has too many inotify instances, or the system has no free descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)? })
    }

    /// Watches another directory.
    ///
    /// # Errors
    /// The path is not a directory, or the user watches too many.
    pub fn add(&self, directory: &Path) -> io::Result<WatchedDirectoryId> {
        let entries = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO;
        let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        Ok(WatchedDirectoryId(inotify::add_watch(&self.fd, directory, entries | itself)?))
    }

    /// Stops watching a directory. The watch of a removed directory has already ended.
    pub fn remove(&self, directory: WatchedDirectoryId) {
        let _ended_already = inotify::remove_watch(&self.fd, directory.0);
    }

    /// Returns a non-blocking descriptor for reading events. Parse them with [`parse_directory_events`].
    ///
    /// # Errors
    /// The system has no free descriptors.
    pub fn event_descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

/// Parses events read from a watch's descriptor into a buffer of [`EVENT_BUFFER_BYTES`].
#[must_use]
pub fn parse_directory_events(mut bytes: &[u8]) -> Vec<DirectoryEvent> {
    let mut events = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(EVENT_HEAD_BYTES) {
        // struct inotify_event: watch, mask, cookie, length of the name, and the zero-padded name.
        let field = |index: usize| head[4 * index..].first_chunk().copied().unwrap_or_default();
        let watch = WatchedDirectoryId(i32::from_ne_bytes(field(0)));
        let name_bytes = usize::try_from(u32::from_ne_bytes(field(3))).unwrap_or(usize::MAX);
        let (name, rest) = rest.split_at(name_bytes.min(rest.len()));
        let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
        let flags = ReadFlags::from_bits_retain(u32::from_ne_bytes(field(1)));
        events.push(directory_event(watch, flags, name.map(|name| OsString::from_vec(name.to_vec()))));
        bytes = rest;
    }
    events
}

fn directory_event(
    directory: WatchedDirectoryId,
    flags: ReadFlags,
    name: Option<OsString>,
) -> DirectoryEvent {
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        DirectoryEvent::Overflow
    } else if flags.contains(ReadFlags::IGNORED) {
        DirectoryEvent::WatchEnded { directory }
    } else {
        match name {
            Some(name) => DirectoryEvent::EntryChanged { directory, name },
            None => DirectoryEvent::DirectoryChanged { directory },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Read as _,
    };

    use super::*;

    fn events(watch: &DirectoryWatch) -> Vec<DirectoryEvent> {
        let mut buffer = vec![0; EVENT_BUFFER_BYTES];
        let read = File::from(watch.event_descriptor().unwrap()).read(&mut buffer);
        read.map(|count| parse_directory_events(&buffer[..count])).unwrap_or_default()
    }

    #[test]
    fn changed_entries_are_named_and_read_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        fs::write(&file, "one").unwrap();
        let watch = DirectoryWatch::new().unwrap();
        let directory = watch.add(dir.path()).unwrap();
        fs::read(&file).unwrap();
        assert_eq!(events(&watch), []);
        fs::write(&file, "two").unwrap();
        let changed = DirectoryEvent::EntryChanged { directory, name: "program".into() };
        assert_eq!(events(&watch), [changed]);
        assert_eq!(watch.add(dir.path()).unwrap(), directory);
    }

    #[test]
    fn removed_directory_ends_its_watch() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        fs::create_dir(&below).unwrap();
        let watch = DirectoryWatch::new().unwrap();
        let directory = watch.add(&below).unwrap();
        fs::remove_dir(&below).unwrap();
        let events = events(&watch);
        assert!(events.contains(&DirectoryEvent::WatchEnded { directory }), "{events:?}");
        fs::create_dir(&below).unwrap();
        assert_ne!(watch.add(&below).unwrap(), directory);
        watch.remove(directory);
    }

    #[test]
    fn cut_events_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let watch = DirectoryWatch::new().unwrap();
        watch.add(dir.path()).unwrap();
        fs::write(dir.path().join("a file"), "").unwrap();
        let mut buffer = vec![0; EVENT_BUFFER_BYTES];
        let count = File::from(watch.event_descriptor().unwrap()).read(&mut buffer).unwrap();
        let whole = parse_directory_events(&buffer[..count]).len();
        for end in 0..count {
            assert!(parse_directory_events(&buffer[..end]).len() <= whole);
        }
    }

    #[test]
    fn file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(DirectoryWatch::new().unwrap().add(file.path()).is_err());
    }
}
