//! `#[derive(Kind)]`: the method `kind` of the error enums of `snap-core`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Fields, Result, Variant};

/// Derives the method `kind`, which returns an `ErrorKind`. The kind of a variant is the first of
/// these:
///
/// 1. The expression in its attribute `#[kind(…)]`. It may name a kind, such as `Damaged`, and the
///    fields of the variant; `_0` is the field of a tuple variant.
/// 2. The kind of its source. The source has the attribute `#[from]` or `#[source]` or the name
///    `source`, or the variant is `#[error(transparent)]`.
/// 3. The expression in the attribute `#[kind(…)]` of the enum.
#[proc_macro_derive(Kind, attributes(kind))]
pub fn derive_kind(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    kind(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn kind(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(item) = &input.data else {
        return Err(Error::new_spanned(input, "only an enum can derive `Kind`"));
    };
    let default = explicit(&input.attrs)?;
    let arms = item.variants.iter().map(|variant| arm(variant, default.as_ref()));
    let (name, arms) = (&input.ident, arms.collect::<Result<Vec<_>>>()?);
    Ok(quote! {
        impl #name {
            /// Returns what the caller can do about the error.
            #[allow(unused_variables)]
            pub fn kind(&self) -> crate::base::kind::ErrorKind {
                #[allow(unused_imports)]
                use crate::base::kind::ErrorKind::*;
                match self { #(#arms)* }
            }
        }
    })
}

/// Returns the arm of a variant, which binds all its fields.
fn arm(variant: &Variant, default: Option<&TokenStream>) -> Result<TokenStream> {
    let is_transparent = attribute(&variant.attrs, "error").is_some_and(|error| {
        error.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "transparent")
    });
    let (mut names, mut source) = (Vec::new(), None);
    for (at, field) in variant.fields.iter().enumerate() {
        let name = field.ident.clone().unwrap_or_else(|| format_ident!("_{at}"));
        let has = |attribute_name| attribute(&field.attrs, attribute_name).is_some();
        if is_transparent || name == "source" || has("from") || has("source") {
            source = Some(quote!(#name.kind().into()));
        }
        names.push(name);
    }
    let Some(kind) = explicit(&variant.attrs)?.or(source).or_else(|| default.cloned()) else {
        return Err(Error::new_spanned(variant, "the variant needs an attribute `#[kind(…)]`"));
    };
    let name = &variant.ident;
    Ok(match variant.fields {
        Fields::Unit => quote!(Self::#name => #kind,),
        Fields::Named(_) => quote!(Self::#name { #(#names),* } => #kind,),
        Fields::Unnamed(_) => quote!(Self::#name(#(#names),*) => #kind,),
    })
}

/// Returns the expression in an attribute `#[kind(…)]`.
fn explicit(attributes: &[Attribute]) -> Result<Option<TokenStream>> {
    let kind = attribute(attributes, "kind");
    kind.map(|kind| Ok(kind.meta.require_list()?.tokens.clone())).transpose()
}

fn attribute<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    attributes.iter().find(|attribute| attribute.path().is_ident(name))
}
