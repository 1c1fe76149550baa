//! The operations of S3 on the [`state`](super::state).

use std::collections::BTreeMap;

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use s3s::{
    S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result,
    checksum::ChecksumHasher,
    crypto::{Checksum as _, Crc32c},
    dto::{
        AbortMultipartUploadInput, AbortMultipartUploadOutput, CommonPrefix,
        CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CreateBucketInput,
        CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput,
        DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput,
        DeletedObject, ETagCondition, GetObjectInput, GetObjectOutput, HeadBucketInput,
        HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListObjectsV2Input,
        ListObjectsV2Output, ListPartsInput, ListPartsOutput, Part, PutObjectInput,
        PutObjectOutput, StreamingBlob, UploadPartInput, UploadPartOutput,
    },
    s3_error,
};

use super::{
    S3Options,
    listing::{self, Query},
    object::{Object, md5},
    state::{Bucket, Condition, Shared, failed},
};

/// Most memory that is reserved because of a `Content-Length`.
const RESERVED_BYTES_MAX: i64 = 64 << 20;

/// Answers requests that `s3s` has verified and decoded.
#[derive(Debug)]
pub(super) struct Handler {
    shared: Shared,
    page_entries: usize,
    ignores_ranges: bool,
}

impl Handler {
    pub(super) fn new(shared: Shared, options: &S3Options) -> Self {
        let S3Options { page_entries, ignores_ranges, .. } = *options;
        Self { shared, page_entries, ignores_ranges }
    }

    /// Returns the object if it exists and meets the conditions of the reader.
    fn find(
        &self,
        (bucket, key): (&str, &str),
        matches: Option<&ETagCondition>,
        matches_not: Option<&ETagCondition>,
    ) -> S3Result<Object> {
        let state = self.shared.lock();
        let object = state.read(bucket)?.find(key).ok_or_else(|| s3_error!(NoSuchKey))?;
        let is = |condition: &ETagCondition| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(tag) => tag.strong_cmp(&object.tag()),
        };
        if matches.is_some_and(|condition| !is(condition)) {
            return Err(failed());
        }
        if matches_not.is_some_and(is) {
            return Err(s3_error!(NotModified));
        }
        Ok(object.clone())
    }
}

/// Reads the whole body of a request, and checks it against its `Content-MD5` and CRC32C.
async fn receive(
    body: Option<StreamingBlob>,
    length: Option<i64>,
    (md5_wanted, crc32c_wanted): (Option<String>, Option<String>),
) -> S3Result<Bytes> {
    let reserved = length.unwrap_or_default().clamp(0, RESERVED_BYTES_MAX);
    let mut bytes = BytesMut::with_capacity(reserved as usize);
    if let Some(mut body) = body {
        while let Some(piece) = body.next().await {
            let piece =
                piece.map_err(|error| S3Error::with_source(S3ErrorCode::IncompleteBody, error))?;
            bytes.extend_from_slice(&piece);
        }
    }
    if length.is_some_and(|length| length != bytes.len() as i64) {
        return Err(s3_error!(IncompleteBody));
    }
    if md5_wanted.is_some_and(|wanted| wanted != BASE64_STANDARD.encode(md5(&bytes))) {
        return Err(s3_error!(BadDigest));
    }
    if let Some(wanted) = crc32c_wanted {
        let mut hasher =
            ChecksumHasher { crc32c: Some(Crc32c::new()), ..ChecksumHasher::default() };
        hasher.update(&bytes);
        if hasher.finalize().checksum_crc32c != Some(wanted) {
            return Err(s3_error!(BadDigest));
        }
    }
    Ok(bytes.freeze())
}

#[async_trait]
impl S3 for Handler {
    async fn create_bucket(
        &self,
        req: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let mut state = self.shared.lock();
        if state.buckets.contains_key(&req.input.bucket) {
            return Err(s3_error!(BucketAlreadyOwnedByYou));
        }
        state.buckets.insert(req.input.bucket, Bucket::default());
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn head_bucket(
        &self,
        req: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.shared.lock().read(&req.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let asked = req.input;
        let object = self.find(
            (&asked.bucket, &asked.key),
            asked.if_match.as_ref(),
            asked.if_none_match.as_ref(),
        )?;
        Ok(S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            content_length: Some(object.len() as i64),
            e_tag: Some(object.tag()),
            last_modified: Some(object.modified.into()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let asked = req.input;
        let object = self.find(
            (&asked.bucket, &asked.key),
            asked.if_match.as_ref(),
            asked.if_none_match.as_ref(),
        )?;
        let whole = object.len();
        let asked_range = asked.range.filter(|_| !self.ignores_ranges);
        let range = match asked_range {
            Some(range) => range.check(whole)?,
            None => 0..whole,
        };
        let content_range = asked_range
            .map(|_| format!("bytes {}-{}/{whole}", range.start, range.end.saturating_sub(1)));
        let length = range.end - range.start;
        let pieces = object.pieces(range).into_iter().map(Ok::<_, std::io::Error>);
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(StreamingBlob::wrap(stream::iter(pieces))),
            content_length: Some(length as i64),
            content_range,
            e_tag: Some(object.tag()),
            last_modified: Some(object.modified.into()),
            ..GetObjectOutput::default()
        }))
    }

    async fn put_object(
        &self,
        req: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let asked = req.input;
        let wanted = (asked.content_md5, asked.checksum_crc32c);
        let object = Object::new(receive(asked.body, asked.content_length, wanted).await?);
        let e_tag = Some(object.tag());
        let condition = Condition { matches: asked.if_match, matches_not: asked.if_none_match };
        self.shared.lock().put(&asked.bucket, asked.key, object, &condition)?;
        Ok(S3Response::new(PutObjectOutput { e_tag, ..PutObjectOutput::default() }))
    }

    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let asked = req.input;
        let condition = Condition { matches: asked.if_match, matches_not: None };
        self.shared.lock().delete(&asked.bucket, &asked.key, &condition)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let mut state = self.shared.lock();
        let mut deleted = Vec::new();
        for object in req.input.delete.objects {
            state.delete(&req.input.bucket, &object.key, &Condition::default())?;
            deleted.push(DeletedObject { key: Some(object.key), ..DeletedObject::default() });
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted).filter(|_| req.input.delete.quiet != Some(true)),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let asked = req.input;
        let after = match &asked.continuation_token {
            Some(token) => hex::decode(token)
                .ok()
                .and_then(|marker| String::from_utf8(marker).ok())
                .ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is incorrect"))?,
            None => asked.start_after.clone().unwrap_or_default(),
        };
        let max = asked.max_keys.map_or(self.page_entries, |keys| keys.max(0) as usize);
        let query = Query {
            prefix: asked.prefix.as_deref().unwrap_or_default(),
            delimiter: asked.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after: &after,
            max: max.min(self.page_entries),
        };
        let page = {
            let state = self.shared.lock();
            let bucket = state.read(&asked.bucket)?;
            listing::page(bucket.stale.as_ref().unwrap_or(&bucket.objects), &query)
        };
        let listed = |(key, object): (String, Object)| s3s::dto::Object {
            key: Some(key),
            size: Some(object.len() as i64),
            e_tag: Some(object.tag()),
            last_modified: Some(object.modified.into()),
            ..s3s::dto::Object::default()
        };
        Ok(S3Response::new(ListObjectsV2Output {
            key_count: Some((page.objects.len() + page.prefixes.len()) as i32),
            max_keys: Some(query.max as i32),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.map(hex::encode),
            contents: Some(page.objects.into_iter().map(listed).collect()),
            common_prefixes: Some(
                page.prefixes.into_iter().map(|p| CommonPrefix { prefix: Some(p) }).collect(),
            ),
            name: Some(asked.bucket),
            prefix: asked.prefix,
            delimiter: asked.delimiter,
            start_after: asked.start_after,
            continuation_token: asked.continuation_token,
            ..ListObjectsV2Output::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let asked = req.input;
        let id = self.shared.lock().begin(&asked.bucket, asked.key.clone())?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(asked.bucket),
            key: Some(asked.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn upload_part(
        &self,
        req: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let asked = req.input;
        let wanted = (asked.content_md5, asked.checksum_crc32c);
        let part = Object::new(receive(asked.body, asked.content_length, wanted).await?);
        let e_tag = Some(part.tag());
        let upload = (&*asked.key, &*asked.upload_id);
        self.shared.lock().put_part(&asked.bucket, upload, asked.part_number, part)?;
        Ok(S3Response::new(UploadPartOutput { e_tag, ..UploadPartOutput::default() }))
    }

    async fn list_parts(
        &self,
        req: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let asked = req.input;
        let held: BTreeMap<i32, Object> = {
            let state = self.shared.lock();
            let uploads = &state.read(&asked.bucket)?.uploads;
            let upload = uploads.get(&asked.upload_id).filter(|upload| upload.key == asked.key);
            upload.ok_or_else(|| s3_error!(NoSuchUpload))?.parts.clone()
        };
        let marker = asked.part_number_marker.unwrap_or_default();
        let max = asked.max_parts.map_or(self.page_entries, |parts| parts.max(1) as usize);
        let max = max.min(self.page_entries);
        let rest: Vec<_> = held.into_iter().filter(|(number, _)| *number > marker).collect();
        let truncated = rest.len() > max;
        let listed = |(number, part): (i32, Object)| Part {
            part_number: Some(number),
            size: Some(part.len() as i64),
            e_tag: Some(part.tag()),
            last_modified: Some(part.modified.into()),
            ..Part::default()
        };
        let parts: Vec<Part> = rest.into_iter().take(max).map(listed).collect();
        Ok(S3Response::new(ListPartsOutput {
            is_truncated: Some(truncated),
            next_part_number_marker: parts
                .last()
                .filter(|_| truncated)
                .and_then(|part| part.part_number),
            part_number_marker: asked.part_number_marker,
            max_parts: Some(max as i32),
            parts: Some(parts),
            bucket: Some(asked.bucket),
            key: Some(asked.key),
            upload_id: Some(asked.upload_id),
            ..ListPartsOutput::default()
        }))
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let asked = req.input;
        let parts = asked.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let condition = Condition { matches: asked.if_match, matches_not: asked.if_none_match };
        let upload = (&*asked.key, &*asked.upload_id);
        let object = self.shared.lock().complete(&asked.bucket, upload, &parts, &condition)?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(asked.bucket),
            key: Some(asked.key),
            e_tag: Some(object.tag()),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let asked = req.input;
        let mut state = self.shared.lock();
        let bucket = state.write(&asked.bucket, 0)?;
        bucket.upload((&asked.key, &asked.upload_id))?;
        bucket.uploads.remove(&asked.upload_id);
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}
