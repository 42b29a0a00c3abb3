"""Headers that a model's own must not hide from the system's: compilers look into the folder of the kit first."""

__all__ = ["SYSTEM_HEADERS"]

_C = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
"""
_POSIX = """
    aio cpio devctl dirent dlfcn endian fcntl fmtmsg fnmatch ftw glob grp iconv langinfo libgen libintl monetary mqueue
    ndbm netdb nl_types poll pthread pwd regex sched search semaphore spawn strings stropts syslog tar termios trace
    ulimit unistd utime utmpx wordexp
"""
_GLIBC = """
    a_out aliases alloca ar argp argz byteswap crypt elf envz err error execinfo features fpu_control fstab fts gconv
    getopt gshadow ieee754 ifaddrs lastlog link malloc mcheck memory mntent nss obstack paths printf proc_service pty
    re_comp regexp resolv rseq sgtty shadow stab stdio_ext syscall sysexits termio thread_db ttyent ucontext utmp values
    wait
"""
_NEWLIB = """
    ansi ansidecl config dirent_local envlock fastmath hal ieeefp ldsodefs machine newlib newlib_version picolibc reent
    regdef stdint_gcc syslist unctrl
"""
_COMPILERS = """
    arm_acle arm_bf16 arm_cde arm_cmse arm_fp16 arm_mve arm_neon arm_sve cpuid cross_stdarg gcov immintrin omp openacc
    quadmath riscv_bitmanip riscv_crypto riscv_vector stdfix syslimits unwind varargs x86intrin
"""
SYSTEM_HEADERS = frozenset("".join((_C, _POSIX, _GLIBC, _NEWLIB, _COMPILERS)).split())
"""Names without `.h` of the headers of C, POSIX, glibc, newlib, picolibc, GCC and Clang, as far as a model may have
them: in lower case, without what begins with an underscore."""
