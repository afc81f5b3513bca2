module asm ".globl start"
module asm "start:"
module asm "  movq (%rsp), %rdi"
module asm "  leaq 8(%rsp), %rsi"
module asm "  movq stack@GOTPCREL(%rip), %rsp"
module asm "  xorl %ebp, %ebp"
module asm "  call run"
module asm "  ud2"

define private i64 @system_call(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d) {
  %result = call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},{rdx},{r10},~{rcx},~{r11},~{memory}"(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d)
  ret i64 %result
}

define private i64 @number_write() alwaysinline {
  ret i64 1
}

define private i64 @number_open() alwaysinline {
  ret i64 257
}

define private i64 @number_read() alwaysinline {
  ret i64 0
}

define private i64 @number_seek() alwaysinline {
  ret i64 8
}

define private i64 @number_exit() alwaysinline {
  ret i64 231
}

define private i64 @number_clock() alwaysinline {
  ret i64 228
}

define private void @mark_begin() alwaysinline {
  call void asm sideeffect "nopl 0x4d5a01(%rax)", "~{memory}"()
  ret void
}

define private void @mark_end() alwaysinline {
  call void asm sideeffect "nopl 0x4d5a02(%rax)", "~{memory}"()
  ret void
}
