//! Reading contents: ranges, streams, batches, and what is wrong with them.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use snap_core::{
    base::id::{BlobId, ContentId},
    repo::Repo,
    store::{ContentReader, FileContent, ObjectWriter, Store, StoreError},
};
use snap_testkit::bytes::Corpus;

use crate::{
    crafted::{Crafted, blob, chunked, mib},
    restore_fixture::add_chunked,
    scratch::Scratch,
};

/// Returns the chunks of a content. Two of them are equal.
fn chunks() -> [Vec<u8>; 4] {
    let first = Corpus::Random.make_seeded(800 << 10, 1);
    let second = Corpus::Random.make_seeded((900 << 10) + 1, 2);
    [first.clone(), second, first, b"last".to_vec()]
}

/// Stores a content in chunks.
fn store_chunked(repo: &Repo) -> ContentId {
    let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
    let id = add_chunked(&writer, &chunks().each_ref().map(|chunk| &chunk[..]));
    writer.finish().unwrap();
    repo.store().refresh().unwrap();
    id
}

fn store_small(repo: &Repo, contents: &[&[u8]]) -> Vec<FileContent> {
    let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
    let mut stored = Vec::new();
    for content in contents {
        writer.add_blob(0, BlobId::of(content), content).unwrap();
        stored.push(FileContent { id: BlobId::of(content).into(), bytes: content.len() as u64 });
    }
    writer.finish().unwrap();
    repo.store().refresh().unwrap();
    stored
}

/// Reads a range, piece by piece.
fn read(
    store: &Store,
    id: &ContentId,
    range: std::ops::Range<u64>,
) -> (Vec<Vec<u8>>, Result<u64, StoreError>) {
    let mut pieces = Vec::new();
    let result = ContentReader::new(store).read(id, None, range, &mut |piece| {
        pieces.push(piece.to_vec());
        Ok(())
    });
    (pieces, result)
}

fn stream(store: &Store, id: &ContentId, stated: Option<u64>) -> (Vec<u8>, Result<(), StoreError>) {
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
    let chunked = store_chunked(&repo);
    let whole = chunks().concat();
    let small = store_small(&repo, &[&whole[1..1 << 20]])[0].id;
    // Offsets near the ends of the chunks and of the small content, and any others.
    let pieces = chunks();
    let ends = pieces.iter().scan(0, |end, chunk| {
        *end += chunk.len() as u64;
        Some(*end)
    });
    let ends = [0, 1 << 20].into_iter().chain(ends).collect::<Vec<_>>();
    let offset = || {
        let near =
            (select(ends.clone()), 0..5_u64).prop_map(|(end, by)| (end + by).saturating_sub(2));
        prop_oneof![3 => near, 1 => 0..4_000_000_u64]
    };
    let run = |(start, end): (u64, u64)| {
        for (id, whole) in [(chunked, &whole[..]), (small, &whole[1..1 << 20])] {
            let (pieces, result) = read(repo.store(), &id, start..end.max(start));
            prop_assert_eq!(result.unwrap(), whole.len() as u64);
            let last = whole.len().min(end.max(start) as usize);
            prop_assert!(pieces.concat() == whole[last.min(start as usize)..last]);
        }
        Ok(())
    };
    TestRunner::new(snap_testkit::property::cases(256)).run(&(offset(), offset()), run).unwrap();
    let start = ContentReader::new(repo.store()).read_start(&chunked, None, 900 << 10).unwrap();
    assert!(start == whole[..900 << 10]);
    assert!(stream(repo.store(), &chunked, None).0 == whole);
    assert!(stream(repo.store(), &small, None).0 == whole[1..1 << 20]);
}

/// A chunk list is hashed before it is used, and each chunk before it is passed on.
#[test]
fn no_byte_of_a_forged_list_or_chunk_is_passed_on() {
    let chunks = [mib(1), mib(2), mib(3), b"last".to_vec()];
    let whole = chunks.concat();
    let parts = chunks.each_ref().map(|chunk| &chunk[..]);
    let (wanted, sound) = chunked(&parts);
    let forge = |at: usize, bytes: &[u8]| {
        let mut claims = sound.clone();
        claims[at].2 = bytes.to_vec();
        claims
    };
    let other = chunked(&[parts[1], parts[0], parts[2], parts[3]]).1.pop().unwrap().2;
    for (claims, forged, before) in
        [(forge(4, &other), wanted.object(), 0), (forge(3, b"lost"), blob(b"last").0, 3 << 20)]
    {
        let crafted = Crafted::of(&claims);
        let (repo, id) = (crafted.repo(), ContentId::Chunked(wanted));
        let is_named = |error: &StoreError| matches!(error, StoreError::Damaged { wanted, .. } if *wanted == forged);
        let (pieces, result) = read(repo.store(), &id, 0..u64::MAX);
        assert!(pieces.concat() == whole[..before]);
        assert!(is_named(&result.unwrap_err()));
        // A stream passes on frames, and nothing of a damaged one.
        let (bytes, result) = stream(repo.store(), &id, None);
        assert!(bytes.len() <= before && whole.starts_with(&bytes));
        assert!(is_named(&result.unwrap_err()));
        // The chunks of a part are sound.
        let (part, result) = read(repo.store(), &id, 1..3 << 20);
        assert_eq!((result.is_ok(), part.concat() == whole[1..3 << 20]), (before > 0, before > 0));
    }
}

#[test]
fn a_length_that_differs_from_the_stated_one_is_refused() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let chunked = store_chunked(&repo);
    let small = store_small(&repo, &[b"small"])[0].id;
    for (id, found) in [(chunked, chunks().concat().len() as u64), (small, 5)] {
        let stated = found - 1;
        let is_length = |error: &StoreError| matches!(error, StoreError::Length { stated: length, found: bytes, .. } if (*length, *bytes) == (stated, found));
        assert!(is_length(&stream(repo.store(), &id, Some(stated)).1.unwrap_err()));
        let reader = ContentReader::new(repo.store());
        assert!(is_length(&reader.read_start(&id, Some(stated), 100).unwrap_err()));
        let read = reader.read_start(&id, Some(found), u64::MAX).unwrap();
        assert_eq!(read.len() as u64, found);
    }
    let batch = [FileContent { id: small, bytes: 4 }];
    let located = repo.store().locate_file(&batch[0]);
    assert!(matches!(located, Err(StoreError::Length { stated: 4, found: 5, .. })), "{located:?}");
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
    let chunked = store_chunked(&repo);
    let texts: Vec<String> = (0..300).map(|n| format!("content {n} ").repeat(n)).collect();
    let contents: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    let mut batch = store_small(&repo, &contents[1..200]);
    batch.extend(store_small(&repo, &contents[200..]));
    batch.push(batch[7]);
    batch.push(FileContent { id: BlobId::of(b"").into(), bytes: 0 });
    batch.push(FileContent { id: chunked, bytes: chunks().concat().len() as u64 });
    batch.push(FileContent { id: BlobId::of(b"missing").into(), bytes: 7 });
    for carry_over in [0, 1, 4] {
        let outcome = ContentReader::new(repo.store()).read_batch(
            &batch,
            carry_over,
            &|| Some(()),
            &|(), index, content| {
                content.map(|content| (batch[index].id, BlobId::of(content).into()))
            },
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
