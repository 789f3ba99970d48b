//! Calls that are rare and can take long: kernels are loaded and compiled, graphs made executable. A request that comes
//! meanwhile waits for them.

use wire::cookie::{Class, Loc};

use super::{Row, legacy, per_thread, row};

pub(super) const ROWS: &[Row] = &[
    row("cuInit", Class::Init, &[legacy("cuInit")], "CUresult cuInit(unsigned flags)"),
    Row {
        required: false,
        ..row(
            "cuModuleLoad",
            Class::ModuleLoad,
            &[legacy("cuModuleLoad")],
            "CUresult cuModuleLoad(CUmodule *module, const char *fname)",
        )
    },
    row(
        "cuModuleLoadData",
        Class::ModuleLoad,
        &[legacy("cuModuleLoadData")],
        "CUresult cuModuleLoadData(CUmodule *module, const void *image)",
    ),
    Row {
        required: false,
        ..row(
            "cuModuleLoadDataEx",
            Class::ModuleLoad,
            &[legacy("cuModuleLoadDataEx")],
            "CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned numOptions, \
             CUjit_option *options, void **optionValues)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuModuleLoadFatBinary",
            Class::ModuleLoad,
            &[legacy("cuModuleLoadFatBinary")],
            "CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuLibraryLoadData",
            Class::LibraryLoad,
            &[legacy("cuLibraryLoadData")],
            "CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, \
             void **jitOptionsValues, unsigned numJitOptions, CUlibraryOption *libraryOptions, \
             void **libraryOptionValues, unsigned numLibraryOptions)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuLibraryLoadFromFile",
            Class::LibraryLoad,
            &[legacy("cuLibraryLoadFromFile")],
            "CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions, \
             void **jitOptionsValues, unsigned numJitOptions, CUlibraryOption *libraryOptions, \
             void **libraryOptionValues, unsigned numLibraryOptions)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuLinkCreate",
            Class::Link,
            &[legacy("cuLinkCreate"), legacy("cuLinkCreate_v2")],
            "CUresult cuLinkCreate_v2(unsigned numOptions, CUjit_option *options, void **optionValues, \
             CUlinkState *stateOut)",
        )
    },
    Row {
        bytes: Loc::Arg(3),
        required: false,
        ..row(
            "cuLinkAddData",
            Class::Link,
            &[legacy("cuLinkAddData"), legacy("cuLinkAddData_v2")],
            "CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, \
             const char *name, unsigned numOptions, CUjit_option *options, void **optionValues)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuLinkAddFile",
            Class::Link,
            &[legacy("cuLinkAddFile"), legacy("cuLinkAddFile_v2")],
            "CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, \
             unsigned numOptions, CUjit_option *options, void **optionValues)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuLinkComplete",
            Class::Link,
            &[legacy("cuLinkComplete")],
            "CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuGraphInstantiate",
            Class::GraphInstantiate,
            &[legacy("cuGraphInstantiate"), legacy("cuGraphInstantiate_v2")],
            "CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph graph, CUgraphNode *phErrorNode, \
             char *logBuffer, size_t bufferSize)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuGraphInstantiateWithFlags",
            Class::GraphInstantiate,
            &[legacy("cuGraphInstantiateWithFlags")],
            "CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph graph, unsigned long long flags)",
        )
    },
    Row {
        required: false,
        ..row(
            "cuGraphInstantiateWithParams",
            Class::GraphInstantiate,
            &[legacy("cuGraphInstantiateWithParams"), per_thread("cuGraphInstantiateWithParams_ptsz")],
            "CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph graph, \
             CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)",
        )
    },
];
