# SPDX-License-Identifier: Apache-2.0
"""Names of x86-64's instructions that the processor's subset lacks, by their opcodes.

``other_instructions.py`` reads the tables. In a text of names by opcode each word belongs to the
next opcode, ``-`` to one that has none. Where the prefixes 66, F3 and F2 make other instructions of
an opcode, their names stand in this order behind the one without a prefix, with ``/`` between them.
The sources are the opcode maps of Intel's manual (SDM volume 2, appendix A).
"""

from __future__ import annotations


def _from(first: int, names: str) -> dict[int, str]:
    words = enumerate(names.split(), first)
    return {code: name for code, name in words if name != "-"}


# Opcodes that are no instruction in 64-bit mode.
INVALID_ONE_BYTE = frozenset(
    [0x06, 0x07, 0x0E, 0x16, 0x17, 0x1E, 0x1F, 0x27, 0x2F, 0x37, 0x3F, 0x60, 0x61, 0x82, 0x9A, 0xCE,
     0xD4, 0xD5, 0xD6, 0xEA]
)  # fmt: skip
ONE_BYTE: dict[int, str] = {
    **_from(0x6C, "insb insd outsb outsd"),
    **_from(0x9B, "fwait - - sahf lahf"),
    **_from(0xA0, "mov mov mov mov"),
    **_from(0xC8, "enter - retf retf"),
    0x8C: "mov", 0x8E: "mov", 0xD7: "xlatb", 0xF1: "int1",
}  # fmt: skip
# By the reg field of ModRM: those that the subset has are "-".
ONE_BYTE_GROUPS: dict[int, str] = {
    **dict.fromkeys((0xC0, 0xC1, 0xD0, 0xD1, 0xD2, 0xD3), "- - rcl rcr - - - -"),
    0xC6: "- - - - - - - xabort", 0xC7: "- - - - - - - xbegin",
    0xFF: "- - - call - jmp - -",
}  # fmt: skip
# Bytes behind opcode and ModRM; those of C7 and of A0 to A3 depend on prefixes.
IMMEDIATES = {0xC0: 1, 0xC1: 1, 0xC6: 1, 0xC7: 4, 0xC8: 3, 0xCA: 2}

# The coprocessor's: by reg of an operand in memory, and by the whole ModRM of registers.
X87_MEMORY: dict[int, str] = {
    0xD8: "fadd fmul fcom fcomp fsub fsubr fdiv fdivr",
    0xD9: "fld - fst fstp fldenv fldcw fnstenv fnstcw",
    0xDA: "fiadd fimul ficom ficomp fisub fisubr fidiv fidivr",
    0xDB: "fild fisttp fist fistp - fld - fstp",
    0xDC: "fadd fmul fcom fcomp fsub fsubr fdiv fdivr",
    0xDD: "fld fisttp fst fstp frstor - fnsave fnstsw",
    0xDE: "fiadd fimul ficom ficomp fisub fisubr fidiv fidivr",
    0xDF: "fild fisttp fist fistp fbld fild fbstp fistp",
}
X87_REGISTERS: dict[int, str] = {
    0xD8: "fadd fmul fcom fcomp fsub fsubr fdiv fdivr",
    0xD9: "fld fxch - - - - - -",
    0xDA: "fcmovb fcmove fcmovbe fcmovu - - - -",
    0xDB: "fcmovnb fcmovne fcmovnbe fcmovnu - fucomi fcomi -",
    0xDC: "fadd fmul - - fsubr fsub fdivr fdiv",
    0xDD: "ffree - fst fstp fucom fucomp - -",
    0xDE: "faddp fmulp - - fsubrp fsubp fdivrp fdivp",
    0xDF: "- - - - - fucomip fcomip -",
}
X87_WHOLE: dict[int, str] = {
    **_from(0xD9E0, "fchs fabs - - ftst fxam - - fld1 fldl2t fldl2e fldpi fldlg2 fldln2 fldz -"),
    **_from(0xD9F0, "f2xm1 fyl2x fptan fpatan fxtract fprem1 fdecstp fincstp"),
    **_from(0xD9F8, "fprem fyl2xp1 fsqrt fsincos frndint fscale fsin fcos"),
    0xD9D0: "fnop", 0xDAE9: "fucompp", 0xDBE2: "fnclex", 0xDBE3: "fninit", 0xDED9: "fcompp",
    0xDFE0: "fnstsw",
}  # fmt: skip

# Behind 0F.
TWO_BYTES: dict[int, str] = {
    **_from(0x02, "lar lsl - - clts - invd wbinvd - ud2 - - femms 3dnow"),
    **_from(0x10, "movups/movupd/movss/movsd movups/movupd/movss/movsd"),
    **_from(0x12, "movlps/movlpd/movsldup/movddup movlps/movlpd unpcklps/unpcklpd"),
    **_from(0x15, "unpckhps/unpckhpd movhps/movhpd/movshdup movhps/movhpd"),
    0x1A: "bndldx/bndmov/bndcl/bndcu", 0x1B: "bndstx/bndmov/bndmk/bndcn", 0x1C: "cldemote",
    **_from(0x20, "mov mov mov mov"),
    **_from(0x28, "movaps/movapd movaps/movapd cvtpi2ps/cvtpi2pd/cvtsi2ss/cvtsi2sd"),
    **_from(0x2B, "movntps/movntpd cvttps2pi/cvttpd2pi/cvttss2si/cvttsd2si"),
    **_from(0x2D, "cvtps2pi/cvtpd2pi/cvtss2si/cvtsd2si ucomiss/ucomisd comiss/comisd"),
    **_from(0x33, "rdpmc sysenter sysexit - getsec"),
    **_from(0x50, "movmskps/movmskpd sqrtps/sqrtpd/sqrtss/sqrtsd rsqrtps//rsqrtss rcpps//rcpss"),
    **_from(0x54, "andps/andpd andnps/andnpd orps/orpd xorps/xorpd addps/addpd/addss/addsd"),
    **_from(0x59, "mulps/mulpd/mulss/mulsd cvtps2pd/cvtpd2ps/cvtss2sd/cvtsd2ss"),
    **_from(0x5B, "cvtdq2ps/cvtps2dq/cvttps2dq subps/subpd/subss/subsd"),
    **_from(0x5D, "minps/minpd/minss/minsd divps/divpd/divss/divsd maxps/maxpd/maxss/maxsd"),
    **_from(0x60, "punpcklbw punpcklwd punpckldq packsswb pcmpgtb pcmpgtw pcmpgtd packuswb"),
    **_from(0x68, "punpckhbw punpckhwd punpckhdq packssdw /punpcklqdq /punpckhqdq movd"),
    **_from(0x6F, "movq/movdqa/movdqu pshufw/pshufd/pshufhw/pshuflw"),
    **_from(0x74, "pcmpeqb pcmpeqw pcmpeqd emms vmread/extrq//insertq vmwrite/extrq//insertq"),
    **_from(0x7C, "/haddpd//haddps /hsubpd//hsubps movd/movd/movq movq/movdqa/movdqu"),
    **_from(0xA0, "push pop"), **_from(0xA8, "push pop rsm"),
    **_from(0xB2, "lss - lfs lgs"), 0xB9: "ud1",
    **_from(0xC2, "cmpps/cmppd/cmpss/cmpsd - pinsrw pextrw shufps/shufpd"),
    **_from(0xD0, "/addsubpd//addsubps psrlw psrld psrlq paddq pmullw /movq/movq2dq/movdq2q"),
    **_from(0xD7, "pmovmskb psubusb psubusw pminub pand paddusb paddusw pmaxub pandn"),
    **_from(0xE0, "pavgb psraw psrad pavgw pmulhuw pmulhw /cvttpd2dq/cvtdq2pd/cvtpd2dq"),
    **_from(0xE7, "movntq/movntdq psubsb psubsw pminsw por paddsb paddsw pmaxsw pxor"),
    **_from(0xF0, "///lddqu psllw pslld psllq pmuludq pmaddwd psadbw maskmovq/maskmovdqu"),
    **_from(0xF8, "psubb psubw psubd psubq paddb paddw paddd ud0"),
}  # fmt: skip
WITHOUT_MODRM = frozenset(
    [0x05, 0x06, 0x07, 0x08, 0x09, 0x0B, 0x0E, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x37, 0x77,
     0xA0, 0xA1, 0xA2, 0xA8, 0xA9, 0xAA]
)  # fmt: skip
WITH_IMMEDIATE = frozenset([0x0F, 0x70, 0x71, 0x72, 0x73, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6])
TWO_BYTE_GROUPS: dict[int, str] = {
    0x00: "sldt str lldt ltr verr verw - -", 0x01: "sgdt sidt lgdt lidt smsw - lmsw invlpg",
    0x0D: "prefetch prefetchw prefetchwt1 - - - - -",
    0x18: "prefetchnta prefetcht0 prefetcht1 prefetcht2 - - - -",
    0x71: "- - psrlw - psraw - psllw -", 0x72: "- - psrld - psrad - pslld -",
    0x73: "- - psrlq psrldq - - psllq pslldq",
    0xAE: "fxsave fxrstor ldmxcsr stmxcsr xsave xrstor xsaveopt clflush",
    0xC7: "- cmpxchg8b - xrstors xsavec xsaves vmptrld vmptrst",
}  # fmt: skip
# Groups whose operand is a register, or whose prefix is another.
OF_REGISTERS: dict[int, str] = {0xC7: "- - - - - - rdrand rdseed"}
WITH_PREFIX: dict[tuple[int, int], str] = {
    (0xAE, 0x66): "- - - - - - clwb clflushopt",
    (0xAE, 0xF3): "rdfsbase rdgsbase wrfsbase wrgsbase ptwrite incsspd umonitor -",
    (0xAE, 0xF2): "- - - - - - umwait -", (0xC7, 0xF3): "- - - - - - vmxon rdpid",
    (0xC7, 0x66): "- - - - - - vmclear -",
}  # fmt: skip
# 0F 01 with the whole ModRM.
SYSTEM: dict[int, str] = {
    **_from(0xC0, "enclv vmcall vmlaunch vmresume vmxoff"),
    **_from(0xC8, "monitor mwait clac stac - - - encls xgetbv xsetbv - - vmfunc xend xtest enclu"),
    **_from(0xD8, "vmrun vmmcall vmload vmsave stgi clgi skinit invlpga"),
    **_from(0xE8, "serialize - - - - - rdpkru wrpkru"),
    **_from(0xF8, "swapgs rdtscp monitorx mwaitx clzero rdpru"),
}

# Behind 0F 38.
MAP_38: dict[int, str] = {
    **_from(0x00, "pshufb phaddw phaddd phaddsw pmaddubsw phsubw phsubd phsubsw"),
    **_from(0x08, "psignb psignw psignd pmulhrsw"), 0x10: "/pblendvb",
    **_from(0x14, "/blendvps /blendvpd - /ptest"), **_from(0x1C, "pabsb pabsw pabsd"),
    **_from(0x20, "/pmovsxbw /pmovsxbd /pmovsxbq /pmovsxwd /pmovsxwq /pmovsxdq"),
    **_from(0x28, "/pmuldq /pcmpeqq /movntdqa /packusdw"),
    **_from(0x30, "/pmovzxbw /pmovzxbd /pmovzxbq /pmovzxwd /pmovzxwq /pmovzxdq - /pcmpgtq"),
    **_from(0x38, "/pminsb /pminsd /pminuw /pminud /pmaxsb /pmaxsd /pmaxuw /pmaxud"),
    **_from(0x40, "/pmulld /phminposuw"), **_from(0x80, "/invept /invvpid /invpcid"),
    **_from(0xC8, "sha1nexte sha1msg1 sha1msg2 sha256rnds2 sha256msg1 sha256msg2 - /gf2p8mulb"),
    **_from(0xDB, "/aesimc /aesenc /aesenclast /aesdec /aesdeclast"),
    **_from(0xF0, "movbe/movbe//crc32 movbe/movbe//crc32"), 0xF5: "/wrussd",
    **_from(0xF6, "wrssd/adcx/adox - /movdir64b/enqcmds/enqcmd movdiri"),
}  # fmt: skip

# Behind 0F 3A; all end with a byte.
MAP_3A: dict[int, str] = {
    **_from(0x08, "/roundps /roundpd /roundss /roundsd /blendps /blendpd /pblendw palignr"),
    **_from(0x14, "/pextrb /pextrw /pextrd /extractps"),
    **_from(0x20, "/pinsrb /insertps /pinsrd"), **_from(0x40, "/dpps /dppd /mpsadbw - /pclmulqdq"),
    **_from(0x60, "/pcmpestrm /pcmpestri /pcmpistrm /pcmpistri"),
    **_from(0xCC, "sha1rnds4 - /gf2p8affineqb /gf2p8affineinvqb"), 0xDF: "/aeskeygenassist",
    0xF0: "//hreset",
}  # fmt: skip
# Those of one prefix only are SSE: of the rest, without a prefix, these are not.
MMX = frozenset([*range(0x60, 0x78), 0x7E, 0x7F, 0xC4, 0xC5, *range(0xD1, 0xFF)])

SSE = frozenset(
    [*range(0x10, 0x18), *range(0x28, 0x30), *range(0x50, 0x78), *range(0x7C, 0x80),
     0xC2, 0xC4, 0xC5, 0xC6, *range(0xD0, 0xFF)]
)  # fmt: skip

# Names that only VEX gives, by the map; W is the bit that makes 64 bits of 32, or double of single.
_FMA = ("fmaddsub", "fmsubadd", "fmadd", "fmadd", "fmsub", "fmsub", "fnmadd", "fnmadd", "fnmsub",
        "fnmsub")  # fmt: skip


def _fma() -> dict[int, str]:
    found = {}
    for high, order in ((0x96, "132"), (0xA6, "213"), (0xB6, "231")):
        for place, name in enumerate(_FMA):
            scalar = place > 1 and place % 2
            single, double = ("ss", "sd") if scalar else ("ps", "pd")
            found[high + place] = f"v{name}{order}{single},v{name}{order}{double}"
    return found


# Here a comma stands between the names with W = 0 and with W = 1.
VEX_0F: dict[int, str] = {
    **_from(0x41, "kandw,kandq kandnw,kandnq - knotw,knotq korw,korq kxnorw,kxnorq kxorw,kxorq"),
    **_from(0x4A, "kaddw,kaddq kunpckwd,kunpckdq"),
    **_from(0x90, "kmovw,kmovq kmovw,kmovq kmovw kmovw"),
    **_from(0x98, "kortestw,kortestq ktestw,ktestq"), 0x77: "vzeroupper",
}  # fmt: skip
VEX_38: dict[int, str] = {
    **_from(0x0C, "vpermilps vpermilpd vtestps vtestpd"), 0x13: "vcvtph2ps", 0x16: "vpermps",
    **_from(0x18, "vbroadcastss vbroadcastsd vbroadcastf128"),
    **_from(0x2C, "vmaskmovps vmaskmovpd vmaskmovps vmaskmovpd"), 0x36: "vpermd",
    **_from(0x45, "vpsrlvd,vpsrlvq vpsravd vpsllvd,vpsllvq"),
    **_from(0x58, "vpbroadcastd vpbroadcastq vbroadcasti128"),
    **_from(0x78, "vpbroadcastb vpbroadcastw"), 0x8C: "vpmaskmovd,vpmaskmovq",
    0x8E: "vpmaskmovd,vpmaskmovq", **_from(0x90, "vpgatherdd,vpgatherdq vpgatherqd,vpgatherqq"),
    **_from(0x92, "vgatherdps,vgatherdpd vgatherqps,vgatherqpd"), **_fma(),
    0xF2: "andn",
}  # fmt: skip
VEX_3A: dict[int, str] = {
    **_from(0x00, "vpermq vpermpd vpblendd - vpermilps vpermilpd vperm2f128"),
    **_from(0x18, "vinsertf128 vextractf128 - - - vcvtps2ph"),
    **_from(0x38, "vinserti128 vextracti128"), 0x46: "vperm2i128",
    **_from(0x4A, "vblendvps vblendvpd vpblendvb"), 0xF0: "rorx",
}  # fmt: skip
# VEX of 0F 38 that the prefix chooses, in the order none, 66, F3, F2.
VEX_BY_PREFIX: dict[int, str] = {
    0xF5: "bzhi//pext/pdep", 0xF6: "///mulx", 0xF7: "bextr/shlx/sarx/shrx",
}  # fmt: skip
VEX_GROUP = "- blsr blsmsk blsi - - - -"  # of F3
