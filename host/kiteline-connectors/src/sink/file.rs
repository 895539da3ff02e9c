//! Lines in a file, such as JSON lines. Owns that every line in the file is whole: a line torn by a crash is cut when the file
//! is opened, and a write that failed half-way is taken back before the next one. What a line says is the caller's.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crate::Error;

/// How much of the file is looked at in one step when its last whole line is searched.
const LOOK_BYTES: u64 = 64 << 10;

/// Longest torn line that is cut. A longer tail without a line feed is no torn line but a file of something else.
const CUT_BYTES_MAX: u64 = 16 << 20;

/// A file that lines are appended to.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    file: File,
    /// Length up to which the file has whole lines.
    good_bytes: u64,
    /// Whether there may be bytes behind that.
    torn: bool,
    /// Bytes cut when the file was opened.
    cut_bytes: u64,
}

impl FileSink {
    /// Opens a file to append to, and makes it if it is not there (its folder must be). A last line without its end is cut
    /// (fault case 24): its record was never committed, so it comes again.
    ///
    /// # Errors
    /// The file cannot be opened, read, cut or synced, or is in use by another sink, of this process or another one.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let failed = |action| {
            let path = path.clone();
            move |source| Error::File { action, path, source }
        };
        let made = !path.exists();
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = options.map_err(failed("open"))?;
        // two writers would write over each other's lines
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::FileInUse { path }),
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        let bytes = file.metadata().map_err(failed("read"))?.len();
        let good_bytes = last_line_end(&mut file, bytes).map_err(failed("read"))?;
        if bytes - good_bytes > CUT_BYTES_MAX {
            return Err(failed("cut")(io::Error::other(
                "it ends with more than 16 MiB without a line feed: not a file of lines",
            )));
        }
        if good_bytes < bytes {
            file.set_len(good_bytes).and_then(|()| file.sync_data()).map_err(failed("cut"))?;
        }
        file.seek(SeekFrom::Start(good_bytes)).map_err(failed("read"))?;
        if made {
            sync_folder(&path).map_err(failed("sync"))?;
        }
        Ok(Self { path, file, good_bytes, torn: false, cut_bytes: bytes - good_bytes })
    }

    /// Bytes of a torn last line that were cut when the file was opened.
    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// Length of the file in bytes, whole lines only.
    pub fn bytes(&self) -> u64 {
        self.good_bytes
    }

    /// Appends lines, each with its line feed at the end: all of them or, on error, none (fault case 25). They are durable only
    /// after [`FileSink::sync`].
    ///
    /// # Errors
    /// The disk took only a part, which is taken back now or, where that fails too, before the next write. Also if `lines` does
    /// not end with a line feed.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), Error> {
        self.mend()?;
        match lines.last() {
            None => return Ok(()),
            Some(b'\n') => {}
            Some(_) => return Err(self.failed("write", io::Error::other("the last line has no end"))),
        }
        self.torn = true;
        if let Err(source) = self.file.write_all(lines) {
            let error = self.failed("write", source);
            // If this fails as well, the next write tries it again first.
            let _ = self.mend();
            return Err(error);
        }
        self.torn = false;
        self.good_bytes += lines.len() as u64;
        Ok(())
    }

    /// Has every line that was written on disk. After an error nothing is known of the lines since the last success: the
    /// system may have dropped them, so the caller must write them again, to a sink opened anew.
    ///
    /// # Errors
    /// The disk failed.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.mend()?;
        self.file.sync_data().map_err(|source| self.failed("sync", source))
    }

    /// Takes back what a failed write left.
    fn mend(&mut self) -> Result<(), Error> {
        if self.torn {
            let cut = self.file.set_len(self.good_bytes);
            let cut = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.good_bytes)));
            cut.map_err(|source| self.failed("cut", source))?;
            self.torn = false;
        }
        Ok(())
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::File { action, path: self.path.clone(), source }
    }
}

/// Where the last whole line ends, 0 if there is none.
fn last_line_end(file: &mut File, bytes: u64) -> io::Result<u64> {
    let mut end = bytes;
    let mut buffer = Vec::new();
    while end > 0 {
        let from = end.saturating_sub(LOOK_BYTES);
        file.seek(SeekFrom::Start(from))?;
        buffer.clear();
        file.take(end - from).read_to_end(&mut buffer)?;
        if let Some(at) = buffer.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("kiteline-file-sink-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn case_24_a_torn_last_line_is_cut_at_open() {
        let folder = folder("case-24");
        let long = "x".repeat(200_000);
        let cases = [
            (String::new(), 0),
            ("a\n".into(), 0),
            ("a\nb".into(), 1),
            ("torn".into(), 4),
            (format!("a\n{long}"), 200_000),
            (format!("{long}\n{long}\n{{\"k\""), 4),
            ("a\n\n".into(), 0),
        ];
        for (index, (content, cut)) in cases.iter().enumerate() {
            let path = folder.join(format!("{index}.jsonl"));
            std::fs::write(&path, content).unwrap();
            let mut sink = FileSink::open(&path).unwrap();
            assert_eq!(sink.cut_bytes(), *cut, "{index}");
            sink.write(b"next\n").unwrap();
            sink.sync().unwrap();
            let whole = &content[..content.len() - usize::try_from(*cut).unwrap()];
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{whole}next\n"), "{index}");
            assert_eq!(sink.bytes(), whole.len() as u64 + 5);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Case 25 in small; the whole of it, with a full disk, is in the suites that run the program.
    #[test]
    fn case_25_what_a_failed_write_left_is_taken_back() {
        let folder = folder("case-25");
        let path = folder.join("out.jsonl");
        let mut sink = FileSink::open(&path).unwrap();
        sink.write(b"one\n").unwrap();
        // What a write that failed half-way leaves, before its cut.
        sink.file.write_all(b"tw").unwrap();
        sink.torn = true;
        sink.write(b"two\n").unwrap();
        sink.sync().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let error = sink.write(b"no end").unwrap_err();
        assert_eq!(error.to_string(), format!("could not write '{}'", path.display()));
        sink.write(b"").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_has_no_lines_is_left_alone() {
        let folder = folder("foreign");
        let path = folder.join("image");
        let file = File::create(&path).unwrap();
        file.set_len(CUT_BYTES_MAX + 1).unwrap();
        assert_eq!(FileSink::open(&path).unwrap_err().to_string(), format!("could not cut '{}'", path.display()));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), CUT_BYTES_MAX + 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = FileSink::open("/nowhere/at/all/out.jsonl").unwrap_err();
        assert_eq!(error.to_string(), "could not open '/nowhere/at/all/out.jsonl'");
    }
}
