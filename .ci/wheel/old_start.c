// glibc before 2.34 runs the constructors of a program by the function that crt1.o hands over.
// Newer crt1.o hands over none. manylinux.py therefore links this between the two.
typedef void Init(int argc, char** argv, char** environment);
typedef int Main(int argc, char** argv, char** environment);

extern void _init(void);
extern Init* __init_array_start[] __attribute__((visibility("hidden")));
extern Init* __init_array_end[] __attribute__((visibility("hidden")));

__asm__(".symver start_of_old_glibc, __libc_start_main@GLIBC_2.2.5");
extern int start_of_old_glibc(Main* main, int argc, char** argv, Init* init, void (*fini)(void),
                              void (*rtld_fini)(void), void* stack_end);

static void construct(int argc, char** argv, char** environment) {
  _init();
  for (Init** each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(argc, argv, environment);
  }
}

int __libc_start_main(Main* main, int argc, char** argv, Init* init, void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  return start_of_old_glibc(main, argc, argv, init != 0 ? init : construct, fini, rtld_fini,
                            stack_end);
}
