//! Every exported function, by name.

use std::ffi::c_void;

macro_rules! functions {
    ($($module:ident: $($name:ident)+;)+) => {
        /// An exported function.
        #[expect(non_camel_case_types, reason = "the driver's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Func {
            $($(#[doc = stringify!($name)] $name,)+)+
        }

        impl Func {
            /// All of them; the index of each is its number.
            pub const ALL: &[Self] = &[$($(Self::$name,)+)+];

            /// The exported name.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$name => stringify!($name),)+)+ }
            }

            /// Where it starts.
            pub(crate) fn address(self) -> *const c_void {
                match self { $($(Self::$name => $crate::$module::$name as *const c_void,)+)+ }
            }
        }
    };
}

functions! {
    init: cuInit cuDriverGetVersion;
    device: cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceTotalMem_v2 cuDeviceGetUuid cuDeviceGetUuid_v2
        cuDeviceGetPCIBusId cuDeviceGetByPCIBusId;
    context: cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuCtxCreate_v2
        cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxSetCurrent
        cuCtxGetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxGetDevice cuCtxSynchronize;
    stream: cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamSynchronize_ptsz cuStreamQuery
        cuStreamQuery_ptsz cuStreamWaitEvent cuStreamWaitEvent_ptsz;
    event: cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventRecord_ptsz cuEventRecordWithFlags
        cuEventRecordWithFlags_ptsz cuEventSynchronize cuEventQuery cuEventElapsedTime;
    module: cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction
        cuLibraryLoadData cuLibraryUnload;
    link: cuLinkCreate_v2 cuLinkAddData_v2 cuLinkComplete cuLinkDestroy;
    launch: cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel
        cuLaunchCooperativeKernel_ptsz;
    graph: cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz cuStreamEndCapture cuStreamEndCapture_ptsz
        cuGraphInstantiate_v2 cuGraphInstantiateWithFlags cuGraphInstantiateWithParams
        cuGraphInstantiateWithParams_ptsz cuGraphDestroy cuGraphExecDestroy cuGraphLaunch cuGraphLaunch_ptsz;
    memory: cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemAllocManaged cuMemFree_v2 cuMemGetInfo_v2;
    host: cuMemHostAlloc cuMemAllocHost_v2 cuMemFreeHost cuMemHostRegister_v2 cuMemHostUnregister;
    pool: cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemFreeAsync
        cuMemFreeAsync_ptsz cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute
        cuMemPoolGetAttribute cuDeviceGetDefaultMemPool;
    vmm: cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap
        cuMemRetainAllocationHandle cuMemSetAccess;
    array: cuArrayCreate_v2 cuArray3DCreate_v2 cuArrayDestroy cuMipmappedArrayCreate cuMipmappedArrayDestroy;
    ipc: cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle;
    copy: cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds cuMemcpyDtoD_v2
        cuMemcpyDtoD_v2_ptds cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2
        cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz cuMemcpyAsync cuMemcpyAsync_ptsz
        cuMemcpy cuMemcpy_ptds;
    error: cuGetErrorName cuGetErrorString;
    resolve: cuGetProcAddress cuGetProcAddress_v2;
}

impl Func {
    /// The function of that exported name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// Which of [`Func::ALL`] it is.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
