//! Decompression of gzip and zstd files.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::CaptureReadError;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The first error of an input.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    pub(super) fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, error: &io::Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.to_string());
    }
}

/// The decompressed `input`, whether it was compressed, and where its errors are recorded.
pub(super) fn decompressed<'a>(
    input: impl Read + Send + 'a,
) -> Result<(Box<dyn Read + Send + 'a>, bool, Failure), CaptureReadError> {
    let io = |error: io::Error| CaptureReadError::Io { reason: error.to_string() };
    let input = Peeked::new(input).map_err(io)?;
    let failure = Failure::default();
    let plain: Box<dyn Read + Send + 'a> = if input.starts_with(&GZIP_MAGIC) {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(65_536, input)))
    } else if input.starts_with(&ZSTD_MAGIC) {
        Box::new(Frames::new(BufReader::with_capacity(65_536, input)).map_err(io)?)
    } else {
        return Ok((Box::new(Full { input, failure: failure.clone() }), false, failure));
    };
    Ok((Box::new(Full { input: plain, failure: failure.clone() }), true, failure))
}

/// An input with its first bytes peeked at.
struct Peeked<R> {
    first: [u8; 4],
    len: usize,
    at: usize,
    rest: R,
}

impl<R: Read> Peeked<R> {
    fn new(mut rest: R) -> io::Result<Self> {
        let mut first = [0; 4];
        let len = fill(&mut rest, &mut first)?;
        Ok(Self { first, len, at: 0, rest })
    }

    fn starts_with(&self, magic: &[u8]) -> bool {
        self.first[..self.len].starts_with(magic)
    }
}

impl<R: Read> Read for Peeked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.len {
            return self.rest.read(buffer);
        }
        let count = buffer.len().min(self.len - self.at);
        buffer[..count].copy_from_slice(&self.first[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Fills the whole buffer unless the input ends, because the parser detects the file type from its first read. An error ends the input
/// after the bytes before it, and is recorded.
struct Full<R> {
    input: R,
    failure: Failure,
}

impl<R: Read> Read for Full<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.failure.reason().is_some() {
            return Ok(0);
        }
        let mut len = 0;
        while len < buffer.len() {
            match self.input.read(&mut buffer[len..]) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure.note(&error);
                    break;
                }
            }
        }
        Ok(len)
    }
}

/// Fills `buffer` as far as possible.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// The frames of a zstd file in sequence (RFC 8878 section 3.1).
struct Frames<R: BufRead> {
    frame: Option<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Frames<R> {
    fn new(input: R) -> io::Result<Self> {
        Ok(Self { frame: Some(begin(input)?) })
    }
}

fn begin<R: BufRead>(input: R) -> io::Result<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>> {
    StreamingDecoder::new(input).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(frame) = &mut self.frame else { return Ok(0) };
            let count = frame.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(frame) = self.frame.take() else { return Ok(0) };
            let mut input = frame.into_inner();
            if !input.fill_buf()?.is_empty() {
                self.frame = Some(begin(input)?);
            }
        }
    }
}
