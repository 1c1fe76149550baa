//! Reading contents: ranges, streams, batches, and what is wrong with them.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::{prelude::*, test_runner::TestRunner};
use snap_core::{
    base::id::BlobId,
    format::chunk_list::{BlobRef, ChunkList, ChunkListEntries},
    repo::Repo,
    store::{ContentReader, FileContent, ObjectWriter, Store, StoreError},
};

use crate::scratch::Scratch;

const CHUNKS: [&[u8]; 4] = [b"first ", b"second ", b"first ", b"last"];

/// Stores a content under the id of another one, if given.
fn store_chunked(repo: &Repo, chunks: &[&[u8]], other: Option<BlobId>) -> BlobId {
    let store = repo.store();
    let writer = ObjectWriter::new(store, 3, 1).unwrap();
    let piece = |chunk: &&[u8]| BlobRef { id: BlobId::of(chunk), bytes: chunk.len() as u32 };
    for chunk in chunks {
        writer.add_blob(0, BlobId::of(chunk), chunk).unwrap();
    }
    let whole = chunks.concat();
    let pieces = ChunkListEntries::Chunks(chunks.iter().map(piece).collect());
    let list = ChunkList { total_bytes: whole.len() as u64, pieces };
    let id = other.unwrap_or_else(|| BlobId::of(&whole));
    writer.add_chunk_list(id, &list.encode()).unwrap();
    writer.finish().unwrap();
    store.refresh().unwrap();
    id
}

fn store_small(repo: &Repo, contents: &[&[u8]]) -> Vec<FileContent> {
    let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
    let mut stored = Vec::new();
    for content in contents {
        writer.add_blob(0, BlobId::of(content), content).unwrap();
        stored.push(FileContent { id: BlobId::of(content), bytes: content.len() as u64 });
    }
    writer.finish().unwrap();
    repo.store().refresh().unwrap();
    stored
}

/// Reads a range, piece by piece.
fn read(
    store: &Store,
    id: &BlobId,
    range: std::ops::Range<u64>,
) -> (Vec<Vec<u8>>, Result<u64, StoreError>) {
    let mut pieces = Vec::new();
    let result = ContentReader::new(store).read(id, None, range, &mut |piece| {
        pieces.push(piece.to_vec());
        Ok(())
    });
    (pieces, result)
}

fn stream(store: &Store, id: &BlobId, stated: Option<u64>) -> (Vec<u8>, Result<(), StoreError>) {
    let mut bytes = Vec::new();
    let result = ContentReader::new(store).stream(id, stated, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    (bytes, result)
}

#[test]
fn every_range_of_a_content_can_be_read() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let chunked = store_chunked(&repo, &CHUNKS, None);
    let small = store_small(&repo, &[&CHUNKS.concat()[1..]])[0].id;
    let run = |(start, end): (u64, u64)| {
        for (id, whole) in [(chunked, &CHUNKS.concat()[..]), (small, &CHUNKS.concat()[1..])] {
            let (pieces, result) = read(repo.store(), &id, start..end.max(start));
            prop_assert_eq!(result.unwrap(), whole.len() as u64);
            let last = whole.len().min(end.max(start) as usize);
            prop_assert_eq!(pieces.concat(), &whole[last.min(start as usize)..last]);
        }
        Ok(())
    };
    TestRunner::new(snap_testkit::property::cases(256)).run(&(0..30_u64, 0..30_u64), run).unwrap();
    let start = ContentReader::new(repo.store()).read_start(&chunked, None, 9).unwrap();
    assert_eq!(start, b"first sec");
    assert_eq!(stream(repo.store(), &chunked, None).0, CHUNKS.concat());
    assert_eq!(stream(repo.store(), &small, None).0, &CHUNKS.concat()[1..]);
}

#[test]
fn the_last_chunk_is_withheld_until_the_hash_is_verified() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let wrong = store_chunked(&repo, &CHUNKS, Some(BlobId::of(b"another content")));
    let actual = BlobId::of(&CHUNKS.concat());
    let (pieces, result) = read(repo.store(), &wrong, 0..u64::MAX);
    assert_eq!(pieces, CHUNKS[..3]);
    let is_named = |error: &StoreError| matches!(error, StoreError::Content { id, actual: found } if (*id, *found) == (wrong, actual));
    assert!(is_named(&result.unwrap_err()));
    let (bytes, result) = stream(repo.store(), &wrong, None);
    assert_eq!(bytes, CHUNKS[..3].concat());
    assert!(is_named(&result.unwrap_err()));
    // The chunks of a part are sound.
    assert_eq!(read(repo.store(), &wrong, 1..23).0.concat(), &CHUNKS.concat()[1..]);
}

#[test]
fn a_length_that_differs_from_the_stated_one_is_refused() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let chunked = store_chunked(&repo, &CHUNKS, None);
    let small = store_small(&repo, &[b"small"])[0].id;
    for (id, found) in [(chunked, 23), (small, 5)] {
        let is_length = |error: &StoreError| matches!(error, StoreError::Length { stated: 4, found: bytes, .. } if *bytes == found);
        assert!(is_length(&stream(repo.store(), &id, Some(4)).1.unwrap_err()));
        let reader = ContentReader::new(repo.store());
        assert!(is_length(&reader.read_start(&id, Some(4), 100).unwrap_err()));
        assert_eq!(reader.read_start(&id, Some(found), 100).unwrap().len() as u64, found);
    }
    let batch = [FileContent { id: small, bytes: 4 }];
    let outcome =
        ContentReader::new(repo.store())
            .read_batch(&batch, 0, &|| Some(()), &|(), _, content| content.map(<[u8]>::to_vec));
    let error = outcome.visited[0].1.as_ref().unwrap_err();
    assert!(matches!(&**error, StoreError::Length { stated: 4, found: 5, .. }), "{error}");
}

#[test]
fn a_batch_visits_each_small_content_once() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let chunked = store_chunked(&repo, &CHUNKS, None);
    let texts: Vec<String> = (0..300).map(|n| format!("content {n} ").repeat(n)).collect();
    let contents: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    let mut batch = store_small(&repo, &contents[1..200]);
    batch.extend(store_small(&repo, &contents[200..]));
    batch.push(batch[7]);
    batch.push(FileContent { id: BlobId::of(b""), bytes: 0 });
    batch.push(FileContent { id: chunked, bytes: 23 });
    batch.push(FileContent { id: BlobId::of(b"missing"), bytes: 7 });
    for carry_over in [0, 1, 4] {
        let outcome = ContentReader::new(repo.store()).read_batch(
            &batch,
            carry_over,
            &|| Some(()),
            &|(), index, content| content.map(|content| (batch[index].id, BlobId::of(content))),
        );
        let chunked: Vec<usize> = outcome.chunked.iter().map(|(_, index)| *index).collect();
        assert_eq!(chunked, [batch.len() - 2]);
        let mut visited: Vec<usize> = outcome.visited.iter().map(|(index, _)| *index).collect();
        visited.sort_unstable();
        let expected: Vec<usize> = (0..batch.len()).filter(|at| *at != batch.len() - 2).collect();
        assert_eq!(visited, expected);
        for (index, result) in outcome.visited {
            match result {
                Ok((id, actual)) => assert_eq!(id, actual),
                Err(error) => {
                    assert_eq!(index, batch.len() - 1);
                    assert!(matches!(&*error, StoreError::Missing { .. }), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_batch_ends_when_no_permit_is_left() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let texts: Vec<String> = (1..500).map(|n| format!("content {n}")).collect();
    let contents: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    let batch = store_small(&repo, &contents);
    let left = AtomicUsize::new(3);
    let begin = || {
        let took =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        took.ok().map(drop)
    };
    let reader = ContentReader::new(repo.store());
    let outcome = reader.read_batch(&batch, 0, &begin, &|(), _, content| assert!(content.is_ok()));
    // One permit goes to contents without a place, one to the frame, one to a run of 64.
    assert_eq!(outcome.visited.len(), 64);
}
