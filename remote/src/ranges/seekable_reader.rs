//! A content as a seekable file.

use std::{
    fmt,
    io::{self, SeekFrom},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};

use super::{LinkEstimate, RandomAccess, RangeReader, RangeReaderOptions, ReadError};

/// An [`AsyncRead`] and [`AsyncSeek`] over a content. A seek sends no request and drops no
/// cached block. Several readers of one [`RangeReader`], or clones of one reader, share the
/// cache.
///
/// For reads at known offsets see [`RangeReader::read_at`] and [`RangeReader::fetch`].
pub struct SeekableReader {
    content: RangeReader,
    position: u64,
    /// The last block, and its offset in the content.
    block: (u64, Bytes),
    /// The block that the reader waits for, and its offset in the content.
    awaited: Option<(u64, BoxFuture<'static, Result<Bytes, ReadError>>)>,
}

impl SeekableReader {
    /// Creates a reader of a content with an empty cache.
    pub fn new(
        blocks: Arc<dyn RandomAccess>,
        link: Arc<LinkEstimate>,
        options: RangeReaderOptions,
    ) -> Self {
        Self::of(RangeReader::new(blocks, link, options))
    }

    /// Creates a reader at the start of `content`.
    pub fn of(content: RangeReader) -> Self {
        Self { content, position: 0, block: (0, Bytes::new()), awaited: None }
    }

    /// Returns the content.
    pub fn content(&self) -> &RangeReader {
        &self.content
    }

    /// Returns the offset of the next read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the bytes of the last block from the current position on.
    fn here(&self) -> &[u8] {
        let (start, bytes) = &self.block;
        let offset =
            self.position.checked_sub(*start).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| bytes.get(offset..)).unwrap_or_default()
    }
}

impl Clone for SeekableReader {
    fn clone(&self) -> Self {
        let content = self.content.clone();
        Self { content, position: self.position, block: self.block.clone(), awaited: None }
    }
}

impl fmt::Debug for SeekableReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeekableReader")
            .field("content", &self.content)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for SeekableReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while buf.remaining() > 0 && self.position < self.content.len() {
            let here = self.here();
            if !here.is_empty() {
                let bytes = here.len().min(buf.remaining());
                buf.put_slice(&here[..bytes]);
                self.position += bytes as u64;
                break;
            }
            let block_bytes = self.content.block_bytes();
            let start = self.position / block_bytes * block_bytes;
            if self.awaited.as_ref().is_none_or(|(awaited, _)| *awaited != start) {
                let read = self.content.read_at(start, block_bytes).boxed();
                self.awaited = Some((start, read));
            }
            let Some((_, read)) = self.awaited.as_mut() else { break };
            let result = ready!(read.poll_unpin(cx));
            self.awaited = None;
            self.block = (start, result?);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for SeekableReader {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.content.len().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "position before the start");
        self.position = position.ok_or_else(before)?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
